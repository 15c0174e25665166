//! Builds the linear programs behind allocations, row by row, for an external solver. This works for all objectives and
//! for any size.
//!
//! An activity is one column: job-seconds per second that a class, or a pair of classes, spends on one GPU type. An
//! activity holds GPUs, uses the time of its classes, and contributes to the rates of these classes. Columns are in
//! units of a typical size, and rows are scaled to about 1.

use super::model::{How, Keeps, Model, Next, Rows, Solution, Solver, SolverError};
use super::rho::Fairness;
use super::space::{Method, Plan, Space, Spent, Water};
use super::split::equal_split;

/// Fraction of an earlier objective that a later stage may give up. The value is too small to change any comparison of
/// plans, but larger than rounding noise.
const SLACK: f64 = 1e-9;
/// A class that needs less than this fraction of its time to meet the objective gets this fraction as its floor.
/// Otherwise the entries of its row would be so large that the last bits of a share would matter.
pub(crate) const LEAST_TIME: f64 = 1e-8;
/// Levels below this fraction of their value under an equal split are compared by their absolute difference.
const LEAST_LEVEL: f64 = 1e-3;
/// A class whose multiplier exceeds this fraction of the sum of all multipliers is a bottleneck.
const BINDING: f64 = 1e-6;
/// Two trials of rho count as equal if their relative difference is at most this.
const SAME_RHO: f64 = 1e-9;

/// An entry: row, column, value.
type Entry = (usize, usize, f64);

/// Solves programs with an external solver.
pub(crate) struct ByRows<'a> {
    /// The solver.
    pub solver: &'a mut dyn Solver,
    /// Settings of the solver.
    pub how: How,
    /// Whether, among several optima, the plan with the largest worth is chosen.
    pub chooses: bool,
    /// Solver statistics.
    pub spent: Spent,
}

impl ByRows<'_> {
    pub(crate) fn run(
        &mut self,
        model: &Model,
        then: &[Next],
    ) -> Result<Vec<Solution>, SolverError> {
        let solved = self.solver.solve(model, then, self.how)?;
        self.spent.programs += solved.solutions.len() as u32;
        let steps = solved.solutions.iter().map(|own| own.iterations);
        self.spent.iterations += steps.sum::<u32>();
        self.spent.is_retry |= solved.is_retry;
        self.spent.method = solved.method;
        Ok(solved.solutions)
    }

    fn run_alone(&mut self, model: &Model) -> Result<Solution, SolverError> {
        let mut found = self.run(model, &[])?;
        found.pop().ok_or(SolverError::Input {
            what: "solutions",
            expected: "one solution for each objective",
        })
    }

    /// Solves both stages of max-min fairness, in units of `reference`. Returns the times of both stages, and the
    /// multipliers of the first stage.
    fn stages(
        &mut self,
        sums: &Activities<'_, '_>,
        asked: &[f64],
        reference: f64,
    ) -> Result<[Vec<f64>; 3], SolverError> {
        let (classes, count) = (asked.len(), sums.count());
        let by_class: Vec<f64> = asked
            .iter()
            .zip(sums.space.members)
            .map(|(own, members)| own / members / reference)
            .collect();
        let mut entries = sums.scaled(&sums.rate, &by_class);
        entries.extend((0..classes).map(|class| (class, count, -1.0)));
        let ratios = Rows {
            entries,
            lower: vec![0.0; classes],
            upper: vec![f64::INFINITY; classes],
        };
        let base = sums.base();
        let first_ratio = base.lower.len();
        let model = sums.model(last_of(count), base.above(ratios), 1);
        let then = Next {
            cost: in_unit(sums.scaled_costs(&sums.worth()), 1),
            keeps: Keeps::LastColumn(1.0 - SLACK),
        };
        let then = if self.chooses { vec![then] } else { Vec::new() };
        let found = self.run(&model, &then)?;
        let (Some(first), Some(last)) = (found.first(), found.last()) else {
            return Ok([vec![], vec![], vec![]]);
        };
        let multipliers = first.row_dual[first_ratio..].iter().map(|own| own.abs());
        Ok([
            sums.times(&first.x),
            sums.times(&last.x),
            multipliers.collect(),
        ])
    }

    /// Returns the plan with the largest total gain. The plan respects the floors, if any. `kept` contains other gains
    /// and a minimum that their total must reach.
    pub(crate) fn best(
        &mut self,
        sums: &Activities<'_, '_>,
        gains: &[f64],
        floors: &[f64],
        kept: Option<(&[f64], f64)>,
    ) -> Result<(f64, Vec<f64>), SolverError> {
        let mut rows = sums.base();
        if !floors.is_empty() {
            rows = rows.above(sums.floors(floors));
        }
        if let Some((other, least)) = kept {
            let each = other.iter().zip(&sums.unit).enumerate();
            rows = rows.above(Rows {
                entries: each
                    .map(|(at, (gain, unit))| (0, at, gain * unit / least))
                    .collect(),
                lower: vec![1.0 - SLACK],
                upper: vec![f64::INFINITY],
            });
        }
        let model = sums.model(in_unit(sums.scaled_costs(gains), 0), rows, 0);
        let times = sums.times(&self.run_alone(&model)?.x);
        Ok((total(gains, &times), times))
    }
}

impl Method for ByRows<'_> {
    fn max_min(&mut self, space: &Space<'_>, measure: &[f64]) -> Result<Plan, SolverError> {
        let sums = Activities::new(space);
        let smallest = |times: &[f64]| {
            let rates = sums.rates_of(times).into_iter().zip(measure);
            rates.fold(f64::INFINITY, |least, (rate, own)| least.min(own * rate))
        };
        let mut reached = smallest(&sums.spread());
        let quickest = space.fastest_alone();
        loop {
            let reference = reached;
            let asked: Vec<f64> = measure
                .iter()
                .zip(&quickest)
                .map(|(own, fastest)| own.min(reference / LEAST_TIME / fastest))
                .collect();
            let [first, last, multipliers] = self.stages(&sums, &asked, reference)?;
            reached = smallest(&first);
            let is_lowered = asked.iter().zip(measure).any(|(asked, own)| asked < own);
            // If the result is much larger than the reference, the minimum time was computed for an objective that was
            // too small.
            if reached <= 2.0 * reference || !is_lowered {
                let weights = multipliers.iter().zip(asked.iter().zip(measure));
                return Ok(Plan {
                    z: reached,
                    weights: weights
                        .map(|(own, (asked, all))| own * asked / all)
                        .collect(),
                    ..sums.plan(&last)
                });
            }
        }
    }

    fn most(
        &mut self,
        space: &Space<'_>,
        gains: &[f64],
        then: Option<&[f64]>,
    ) -> Result<Plan, SolverError> {
        let sums = Activities::new(space);
        let by_activity = |cells: &[f64], of_pair: fn(&super::choose::Pair) -> f64| {
            let alone = sums.cells.iter().map(|&cell| cells[cell]);
            let together = space.pairs.iter().map(of_pair);
            alone.chain(together).collect::<Vec<f64>>()
        };
        let gains = by_activity(gains, |pair| pair.gain);
        let (z, mut times) = self.best(&sums, &gains, &[], None)?;
        if let Some(then) = then.filter(|_| self.chooses) {
            let then = by_activity(then, |pair| pair.then);
            (_, times) = self.best(&sums, &then, &[], Some((&gains, z)))?;
        }
        Ok(Plan {
            z,
            ..sums.plan(&times)
        })
    }

    fn least_rho(
        &mut self,
        space: &Space<'_>,
        fairness: &Fairness<'_>,
    ) -> Result<Plan, SolverError> {
        let sums = Activities::new(space);
        let cheap = fairness.largest(&sums.rates_of(&sums.spread()));
        let chooses = std::mem::replace(&mut self.chooses, false);
        let found = fairness.search(self, space, cheap, SAME_RHO)?;
        self.chooses = chooses;
        let z = fairness.largest(&space.rates_of(&found));
        if !chooses {
            return Ok(Plan { z, ..found });
        }
        let plan = self.max_min(space, &fairness.measure(space, z))?;
        Ok(Plan { z, ..plan })
    }

    fn fill(
        &mut self,
        space: &Space<'_>,
        water: &Water<'_>,
    ) -> Result<(Vec<f64>, Plan), SolverError> {
        let sums = Activities::new(space);
        let classes = space.gangs.len();
        let levels_of = |times: &[f64]| {
            let rates = sums.rates_of(times).into_iter().zip(water.worth);
            rates
                .map(|(rate, worth)| worth * rate)
                .collect::<Vec<f64>>()
        };
        let typical = levels_of(&sums.spread());
        let (mut filled, mut done) = (vec![0.0; classes], vec![false; classes]);
        let mut times = vec![0.0; sums.count()];
        while done.contains(&false) {
            let speeds = (water.speeds)(&done);
            let (model, heights) = sums.rise(water.worth, &typical, &filled, &speeds);
            let found = self.run_alone(&model)?;
            times = sums.times(&found.x);
            // The levels are exactly those of a plan, so the next program has a feasible start.
            let reached = levels_of(&times);
            let wanted = || speeds.iter().enumerate().filter(|own| *own.1 > 0.0);
            let rise = wanted().fold(f64::INFINITY, |least, (class, speed)| {
                least.min((reached[class] - filled[class]) / speed)
            });
            for (class, speed) in wanted() {
                filled[class] += rise.max(0.0) * speed;
            }
            for (own, reached) in filled.iter_mut().zip(&reached) {
                *own = own.min(*reached);
            }
            // A row with a nonzero multiplier is tight in every plan that lowers no level, so the class of the row
            // cannot rise.
            let first = found.row_dual.len() - classes;
            let force = |class: usize| found.row_dual[first + class].abs() / heights[class];
            let all: f64 = wanted().map(|(class, speed)| force(class) * speed).sum();
            let stuck = wanted().filter(|(class, speed)| force(*class) * **speed > BINDING * all);
            let stuck: Vec<usize> = stuck.map(|(class, _)| class).collect();
            if stuck.is_empty() {
                let left = done.iter().filter(|own| !**own).count();
                return Err(SolverError::Bottleneck { left });
            }
            for class in stuck {
                done[class] = true;
            }
        }
        if self.chooses {
            let reached = sums.rates_of(&times).into_iter();
            let floors = reached.zip(filled.iter().zip(water.worth));
            let floors =
                floors.map(|(rate, (level, worth))| rate.min(level / worth) * (1.0 - SLACK));
            (_, times) = self.best(&sums, &sums.worth(), &floors.collect::<Vec<_>>(), None)?;
        }
        Ok((filled, sums.plan(&times)))
    }
}

/// The columns of a program: first the classes that run alone, then the pairs.
pub(crate) struct Activities<'a, 'b> {
    /// The set of feasible plans.
    pub space: &'a Space<'b>,
    /// For each activity of a single class, its class and type as the index of a table cell.
    cells: Vec<usize>,
    /// Type of each activity.
    kinds: Vec<usize>,
    /// Number of GPUs that each activity holds.
    gangs: Vec<f64>,
    /// Matrix entries that count the busy jobs of each class.
    time: Vec<Entry>,
    /// Matrix entries that count the steps per second of each class.
    pub rate: Vec<Entry>,
    /// Typical size of each activity.
    pub unit: Vec<f64>,
}

impl<'a, 'b> Activities<'a, 'b> {
    pub(crate) fn new(space: &'a Space<'b>) -> Self {
        let (types, members) = (space.capacity.len(), space.members);
        let usable = |cell: &usize| space.rates[*cell] > 0.0 && space.capacity[*cell % types] > 0.0;
        let cells: Vec<usize> = (0..space.rates.len()).filter(usable).collect();
        let alone = cells.iter().enumerate();
        let mut time: Vec<Entry> = alone.map(|(at, cell)| (cell / types, at, 1.0)).collect();
        let alone = cells.iter().enumerate();
        let mut rate: Vec<Entry> = alone
            .map(|(at, cell)| (cell / types, at, space.rates[*cell]))
            .collect();
        let pairs = || (cells.len()..).zip(&space.pairs);
        for (at, pair) in pairs() {
            // The two jobs belong to one class, so their time counts twice, and both rates count for the class.
            let [one, other] = pair.classes;
            let is_inside = one == other;
            time.push((one, at, if is_inside { 2.0 } else { 1.0 }));
            let both = if is_inside { pair.rates[1] } else { 0.0 };
            rate.push((one, at, pair.rates[0] + both));
        }
        for (at, pair) in pairs().filter(|own| own.1.classes[0] != own.1.classes[1]) {
            time.push((pair.classes[1], at, 1.0));
            rate.push((pair.classes[1], at, pair.rates[1]));
        }
        let kinds = cells.iter().map(|cell| cell % types);
        let kinds = kinds.chain(space.pairs.iter().map(|pair| pair.gpu_type));
        let first = cells.iter().map(|cell| cell / types);
        let first: Vec<usize> = first
            .chain(space.pairs.iter().map(|pair| pair.classes[0]))
            .collect();
        let need = members
            .iter()
            .zip(space.gangs)
            .map(|(own, gang)| own * gang);
        let load = (need.sum::<f64>() / space.capacity.iter().sum::<f64>()).max(1.0);
        let of_pair = |pair: &super::choose::Pair| {
            let [one, other] = pair.classes.map(|class| members[class]);
            one.min(other)
        };
        let alone = cells.iter().map(|cell| members[cell / types]);
        let unit = alone.chain(space.pairs.iter().map(of_pair));
        Self {
            kinds: kinds.collect(),
            gangs: first.iter().map(|&class| space.gangs[class]).collect(),
            unit: unit.map(|own| own / load).collect(),
            space,
            cells,
            time,
            rate,
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.unit.len()
    }

    /// Returns the entries after multiplying each row by a number for its class, and scaling each column to its unit.
    pub(crate) fn scaled(&self, entries: &[Entry], by_class: &[f64]) -> Vec<Entry> {
        let each = entries.iter();
        each.map(|&(class, at, value)| (class, at, value * by_class[class] * self.unit[at]))
            .collect()
    }

    /// Returns a program with these columns and some additional columns, which are at least 0.
    pub(crate) fn model(&self, cost: Vec<f64>, rows: Rows, more: usize) -> Model {
        let columns = self.count() + more;
        Model {
            cost,
            lower: vec![0.0; columns],
            upper: vec![f64::INFINITY; columns],
            rows,
            maximise: true,
            is_integer: false,
        }
    }

    /// Returns the rows that limit capacity and time.
    pub(crate) fn base(&self) -> Rows {
        let (types, classes) = (self.space.capacity.len(), self.space.gangs.len());
        let held = self
            .kinds
            .iter()
            .zip(&self.gangs)
            .zip(&self.unit)
            .enumerate();
        let held = held
            .map(|(at, ((&kind, gang), unit))| (kind, at, gang * unit / self.space.capacity[kind]));
        let each: Vec<f64> = self.space.members.iter().map(|own| 1.0 / own).collect();
        let at_most = |entries: Vec<Entry>, rows: usize| {
            let (entries, used) = without_gaps(entries, rows);
            Rows {
                entries,
                lower: vec![f64::NEG_INFINITY; used],
                upper: vec![1.0; used],
            }
        };
        let held = at_most(held.collect(), types);
        held.above(at_most(self.scaled(&self.time, &each), classes))
    }

    /// Returns the rows for the minimum rate of each class; a floor of 0 has no row.
    pub(crate) fn floors(&self, floors: &[f64]) -> Rows {
        let quickest = self.space.fastest_alone();
        let reference = |class: usize| floors[class].max(LEAST_TIME * quickest[class]);
        let by_class: Vec<f64> = (0..floors.len())
            .map(|class| 1.0 / (reference(class) * self.space.members[class]))
            .collect();
        let entries = self.scaled(&self.rate, &by_class);
        let inside = entries.into_iter().filter(|own| floors[own.0] > 0.0);
        let (entries, used) = without_gaps(inside.collect(), floors.len());
        let kept = (0..floors.len()).filter(|&class| floors[class] > 0.0);
        Rows {
            entries,
            lower: kept.map(|class| floors[class] / reference(class)).collect(),
            upper: vec![f64::INFINITY; used],
        }
    }

    /// Returns the program that raises all levels together, and the units of its last rows, one row per class.
    fn rise(
        &self,
        worth: &[f64],
        typical: &[f64],
        filled: &[f64],
        speeds: &[f64],
    ) -> (Model, Vec<f64>) {
        let wanted = || speeds.iter().enumerate().filter(|own| *own.1 > 0.0);
        let together = wanted().fold(f64::INFINITY, |least, (class, speed)| {
            least.min(typical[class] / speed)
        });
        let each = filled.iter().zip(typical);
        let mut heights: Vec<f64> = each.map(|(own, all)| own.max(LEAST_LEVEL * all)).collect();
        for (class, speed) in wanted() {
            heights[class] = heights[class].max(speed * together);
        }
        let by_class: Vec<f64> = (0..worth.len())
            .map(|class| worth[class] / self.space.members[class] / heights[class])
            .collect();
        let mut entries = self.scaled(&self.rate, &by_class);
        let rising = wanted();
        entries.extend(
            rising.map(|(class, speed)| (class, self.count(), -speed * together / heights[class])),
        );
        let rows = Rows {
            entries,
            lower: filled
                .iter()
                .zip(&heights)
                .map(|(own, all)| own / all)
                .collect(),
            upper: vec![f64::INFINITY; filled.len()],
        };
        let model = self.model(last_of(self.count()), self.base().above(rows), 1);
        (model, heights)
    }

    /// Returns the activities of an equal split among the jobs, as an initial plan.
    pub(crate) fn spread(&self) -> Vec<f64> {
        let space = self.space;
        let jobs: f64 = space.members.iter().sum();
        let gangs = space.gangs.iter();
        let table: Vec<f64> = gangs
            .zip(space.members)
            .flat_map(|(gang, members)| {
                equal_split(space.capacity, jobs, gang.max(1.0)).map(move |share| share * members)
            })
            .collect();
        let mut times: Vec<f64> = self.cells.iter().map(|&cell| table[cell]).collect();
        times.resize(self.count(), 0.0);
        times
    }

    /// Returns the steps per second of one job of each class.
    pub(crate) fn rates_of(&self, times: &[f64]) -> Vec<f64> {
        let mut rates = vec![0.0; self.space.gangs.len()];
        for &(class, at, rate) in &self.rate {
            rates[class] += rate * times[at];
        }
        for (rate, members) in rates.iter_mut().zip(self.space.members) {
            *rate /= members;
        }
        rates
    }

    /// Returns the times of a solution after moving them back inside the bounds. The solution may exceed the bounds by
    /// the solver's tolerance.
    pub(crate) fn times(&self, x: &[f64]) -> Vec<f64> {
        let space = self.space;
        let each = x.iter().zip(&self.unit);
        let times: Vec<f64> = each.map(|(own, unit)| (own * unit).max(0.0)).collect();
        let mut held = vec![0.0; space.capacity.len()];
        for (at, &kind) in self.kinds.iter().enumerate() {
            held[kind] += self.gangs[at] * times[at];
        }
        let mut busy = vec![0.0; space.gangs.len()];
        for &(class, at, jobs) in &self.time {
            busy[class] += jobs * times[at];
        }
        let over = |at: usize| {
            let gpus = space.capacity[self.kinds[at]];
            (held[self.kinds[at]] / gpus).max(1.0)
        };
        let mut factors: Vec<f64> = (0..times.len()).map(over).collect();
        for &(class, at, _) in &self.time {
            factors[at] = factors[at].max(busy[class] / space.members[class]);
        }
        times
            .iter()
            .zip(factors)
            .map(|(own, over)| own / over)
            .collect()
    }

    /// Returns the plan in which the activities have these times.
    pub(crate) fn plan(&self, times: &[f64]) -> Plan {
        let types = self.space.capacity.len();
        let mut shares = vec![0.0; self.space.rates.len()];
        for (&cell, time) in self.cells.iter().zip(times) {
            shares[cell] = (time / self.space.members[cell / types]).clamp(0.0, 1.0);
        }
        Plan {
            shares,
            together: times[self.cells.len()..].to_vec(),
            ..Plan::default()
        }
    }

    /// Returns the value of one unit of each activity, given the value of one step per second for each class.
    pub(crate) fn by_rate(&self, worth: &[f64]) -> Vec<f64> {
        let mut gains = vec![0.0; self.count()];
        for &(class, at, rate) in &self.rate {
            gains[at] += rate * worth[class];
        }
        gains
    }

    fn worth(&self) -> Vec<f64> {
        self.by_rate(&self.space.worth)
    }

    /// Returns the gain per unit of each column.
    fn scaled_costs(&self, gains: &[f64]) -> Vec<f64> {
        let each = gains.iter().zip(&self.unit);
        each.map(|(gain, unit)| gain * unit).collect()
    }

    /// Returns the gain of each column, scaled so that the largest is 1, followed by `more` columns without a gain.
    pub(crate) fn costs(&self, gains: &[f64], more: usize) -> Vec<f64> {
        in_unit(self.scaled_costs(gains), more)
    }

    pub(crate) fn kinds(&self) -> &[usize] {
        &self.kinds
    }
}

pub(crate) fn total(gains: &[f64], times: &[f64]) -> f64 {
    gains
        .iter()
        .zip(times)
        .map(|(gain, time)| gain * time)
        .sum()
}

fn in_unit(costs: Vec<f64>, more: usize) -> Vec<f64> {
    let largest = costs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let mut costs: Vec<f64> = costs.into_iter().map(|own| own / largest).collect();
    costs.resize(costs.len() + more, 0.0);
    costs
}

/// Returns costs that are 0 for the first `count` columns and 1 for the next column.
fn last_of(count: usize) -> Vec<f64> {
    let mut cost = vec![0.0; count];
    cost.push(1.0);
    cost
}

/// Removes empty rows and renumbers the others; returns the entries and the number of remaining rows.
fn without_gaps(entries: Vec<Entry>, rows: usize) -> (Vec<Entry>, usize) {
    let mut place = vec![usize::MAX; rows];
    for &(row, _, _) in &entries {
        place[row] = 0;
    }
    let mut used = 0;
    for own in place.iter_mut().filter(|own| **own == 0) {
        *own = used;
        used += 1;
    }
    let moved = entries
        .into_iter()
        .map(|(row, at, value)| (place[row], at, value));
    (moved.collect(), used)
}
