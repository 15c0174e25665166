//! Finds the load that a trace offers to each GPU type, under the most even division of its work among the types.

use super::class::{RowPart, group_rows};
use super::model::{Algorithm, How, Model, Rows, Solver, SolverError};

/// Ratios are compared after rounding to 1e-12, because equal ratios can differ in later digits.
const DIGITS: f64 = 1e12;
/// A multiplier above this limit is more than a rounding error; the multipliers of one program add up to 1.
const BINDING: f64 = 1e-7;

/// A class: the work of all jobs whose rates have the same ratios between the types.
struct Class<'a> {
    /// GPU-seconds on each type relative to their minimum; infinite where the jobs cannot run.
    ratios: &'a [f64],
    /// Sum of the minimum GPU-seconds of all these jobs.
    work: f64,
}

/// Returns the load of each type under the most even division of the work; `None` if some of the work cannot run on any
/// type.
///
/// `need` contains the GPU-seconds of each job on each type (`jobs x types`), infinite where the job cannot run. `work`
/// contains the minimum of these GPU-seconds over the types for each job. `capacity` contains the GPU-seconds that each
/// type has.
///
/// # Errors
/// Returns [`SolverError`] if a program does not end at an optimum.
///
/// # Examples
/// ```
/// use gangline_allocation::{NoSolver, even_loads};
/// let loads = even_loads(&[6.0, 3.0], &[3.0], &[4.0, 1.0], &mut NoSolver);
/// assert_eq!(loads, Ok(Some(vec![1.0, 1.0])));
/// ```
pub fn even_loads(
    need: &[f64],
    work: &[f64],
    capacity: &[f64],
    solver: &mut dyn Solver,
) -> Result<Option<Vec<f64>>, SolverError> {
    let types = capacity.len();
    let ratio = |(at, own): (usize, &f64)| {
        if !own.is_finite() || capacity[at % types] <= 0.0 {
            return f64::INFINITY;
        }
        let all = work[at / types];
        let ratio = if all > 0.0 { own / all } else { 1.0 };
        (ratio * DIGITS).round_ties_even() / DIGITS
    };
    let ratios: Vec<f64> = need.iter().enumerate().map(ratio).collect();
    let words: Vec<u64> = ratios.iter().map(|own| own.to_bits()).collect();
    let rows = RowPart {
        words: &words,
        width: types,
    };
    let found = group_rows(&[rows], work.len());
    let mut total = vec![0.0; found.first.len()];
    for (&class, work) in found.of.iter().zip(work) {
        total[class as usize] += work;
    }
    let first = found.first.iter().map(|&first| first as usize * types);
    let mut classes: Vec<Class<'_>> = first
        .zip(total)
        .filter(|(_, work)| *work > 0.0)
        .map(|(at, work)| Class {
            ratios: &ratios[at..at + types],
            work,
        })
        .collect();
    classes.sort_by(|a, b| a.ratios.partial_cmp(b.ratios).expect("ratios are numbers"));
    let fits = |class: &Class<'_>| class.ratios.iter().any(|own| own.is_finite());
    if !classes.iter().all(fits) {
        return Ok(None);
    }
    match classes.as_slice() {
        [] => Ok(Some(vec![0.0; types])),
        [one] => Ok(Some(at_its_speeds(one, capacity))),
        _ => by_programs(&classes, capacity, solver).map(Some),
    }
}

/// Returns the loads for a single class: all types on which it can run have the same load.
fn at_its_speeds(class: &Class<'_>, capacity: &[f64]) -> Vec<f64> {
    let usable = class.ratios.iter().zip(capacity);
    let usable = usable.filter(|(ratio, _)| ratio.is_finite());
    let speeds: Vec<f64> = usable.map(|(ratio, own)| own / ratio).collect();
    let load = class.work / sum(&speeds);
    let ratios = class.ratios.iter();
    ratios
        .map(|ratio| if ratio.is_finite() { load } else { 0.0 })
        .collect()
}

/// Returns the loads that minimise the largest load of a type, then the second largest load, and so on.
///
/// Each program minimises the largest load of the remaining types. If the row of a type has a nonzero multiplier, the
/// type has the same load in every optimum, so this load is fixed.
fn by_programs(
    classes: &[Class<'_>],
    capacity: &[f64],
    solver: &mut dyn Solver,
) -> Result<Vec<f64>, SolverError> {
    let (many, types) = (classes.len(), capacity.len());
    let mut cells = Vec::new();
    let mut least = Vec::new();
    for (at, class) in classes.iter().enumerate() {
        let need = class.ratios.iter().map(|ratio| ratio * class.work);
        least.push(need.clone().fold(f64::INFINITY, f64::min));
        let usable = need.enumerate().filter(|(_, own)| own.is_finite());
        cells.extend(usable.map(|(kind, own)| (at, kind, own / capacity[kind])));
    }
    // This unit scales the minimum load to about 1.
    let unit = sum(&least) / sum(capacity);
    let mut loads = vec![0.0; types];
    let mut is_free = vec![false; types];
    for &(_, kind, _) in &cells {
        is_free[kind] = true;
    }
    let how = How {
        algorithm: Algorithm::Auto,
        time_limit_s: 60.0,
        seed: 0,
    };
    while is_free.contains(&true) {
        let model = lowering(&cells, many, unit, &loads, &is_free);
        let mut optima = solver.solve(&model, &[], how)?.solutions;
        let found = optima.pop().ok_or(SolverError::Input {
            what: "solutions",
            expected: "one solution for each objective",
        })?;
        let load = found.x.last().map_or(0.0, |own| own * unit);
        let mut is_known = false;
        for (kind, multiplier) in found.row_dual[many..].iter().enumerate() {
            if is_free[kind] && multiplier.abs() > BINDING {
                loads[kind] = load;
                is_free[kind] = false;
                is_known = true;
            }
        }
        if !is_known {
            break; // No load can be lowered further.
        }
    }
    Ok(loads)
}

/// Returns the program that minimises the largest load of the free types. The columns are the fraction of each class's
/// work that each type does, followed by the largest load in units of `unit`.
fn lowering(
    cells: &[(usize, usize, f64)],
    classes: usize,
    unit: f64,
    loads: &[f64],
    is_free: &[bool],
) -> Model {
    let columns = cells.len();
    let each = cells.iter().enumerate();
    let mut entries: Vec<(usize, usize, f64)> =
        each.clone().map(|(at, own)| (own.0, at, 1.0)).collect();
    entries.extend(each.map(|(at, own)| (classes + own.1, at, own.2 / unit)));
    let free = (0..loads.len()).filter(|&kind| is_free[kind]);
    entries.extend(free.map(|kind| (classes + kind, columns, -1.0)));
    let most = loads.iter().zip(is_free);
    let most = most.map(|(load, free)| if *free { 0.0 } else { load / unit });
    let mut cost = vec![0.0; columns];
    cost.push(1.0);
    let mut upper = vec![1.0; columns];
    upper.push(f64::INFINITY);
    Model {
        cost,
        lower: vec![0.0; columns + 1],
        upper,
        rows: Rows {
            entries,
            lower: [vec![1.0; classes], vec![f64::NEG_INFINITY; loads.len()]].concat(),
            upper: vec![1.0; classes].into_iter().chain(most).collect(),
        },
        maximise: false,
        is_integer: false,
    }
}

/// Returns a sum that is computed in eight parts and, for a long array, recursively over its halves. The rounding error
/// is small, and the result has the same digits as the column sums in Python.
fn sum(values: &[f64]) -> f64 {
    let (whole, rest) = values.split_at(values.len() - values.len() % 8);
    if whole.is_empty() {
        return rest.iter().sum();
    }
    if values.len() > 128 {
        let half = values.len() / 2;
        let (one, other) = values.split_at(half - half % 8);
        return sum(one) + sum(other);
    }
    let mut parts = [0.0; 8];
    for eight in whole.chunks_exact(8) {
        for (part, value) in parts.iter_mut().zip(eight) {
            *part += value;
        }
    }
    let [first, second, third, fourth] = [0, 2, 4, 6].map(|at| parts[at] + parts[at + 1]);
    let all = (first + second) + (third + fourth);
    rest.iter().fold(all, |all, value| all + value)
}
