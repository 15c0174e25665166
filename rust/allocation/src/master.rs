//! The small master program that mixes plans. It has one row per GPU type, one further row for the weights, and one
//! column per plan.
//!
//! Each plan reaches a certain z. For each type, the plan either leaves a fraction of the GPUs idle or needs more GPUs
//! than there are. The program finds the mix with the largest z that needs no more GPUs than there are. The duals of
//! its rows are the next prices. The method is a dense primal simplex that starts from the previous basis, because a
//! new column never makes the current mix infeasible. Ties go to the lowest index.

/// A reduced cost or a level below this limit is treated as zero; all numbers in this program are of the order of 1.
const NOISE: f64 = 1e-11;
/// A pivot below this limit is treated as zero; otherwise, two plans that differ only by rounding could both enter the
/// basis and make it nearly singular.
const PIVOT: f64 = 1e-9;
/// Number of pivots that are chosen by the largest gain; after that, Bland's rule prevents cycles.
const FREE_PIVOTS: usize = 200;

/// The linear program that mixes plans.
#[derive(Clone, Debug)]
pub(crate) struct Master {
    types: usize,
    /// Objective of each plan.
    values: Vec<f64>,
    /// For each plan, the fraction of each type that it leaves idle (negative if it needs too many GPUs), followed by a
    /// 1 for the row of weights.
    columns: Vec<Vec<f64>>,
    /// Variables in the basis. Numbers below `types` stand for the slacks of the types, and the others for plans.
    basis: Vec<usize>,
}

/// The optimal mix of the plans so far.
#[derive(Clone, Debug)]
pub(crate) struct Mix {
    /// Objective of the mix.
    pub value: f64,
    /// Price of all GPUs of each type, >= 0.
    pub prices: Vec<f64>,
    /// Pairs (plan, weight); the weights are positive and add up to 1.
    pub weights: Vec<(usize, f64)>,
}

impl Master {
    /// Creates the program with a first plan that needs no more GPUs than there are.
    pub(crate) fn new(value: f64, left: &[f64]) -> Self {
        debug_assert!(left.iter().all(|&part| part >= 0.0));
        let types = left.len();
        let mut master = Self {
            types,
            values: Vec::new(),
            columns: Vec::new(),
            basis: (0..=types).collect(),
        };
        master.add(value, left);
        master
    }

    /// Adds a plan and returns its number.
    pub(crate) fn add(&mut self, value: f64, left: &[f64]) -> usize {
        let mut column = left.to_vec();
        column.push(1.0);
        self.values.push(value);
        self.columns.push(column);
        self.values.len() - 1
    }

    /// Finds the optimal mix; returns `None` if pivoting does not terminate, which would be a bug.
    pub(crate) fn solve(&mut self) -> Option<Mix> {
        let variables = self.types + self.values.len();
        for pivot in 0..FREE_PIVOTS + 100 * variables {
            let transposed = self.matrix(true);
            let costs: Vec<f64> = self.basis.iter().map(|&var| self.cost(var)).collect();
            let duals = dense_solve(transposed, costs)?;
            let matrix = self.matrix(false);
            let mut one = vec![0.0; self.types + 1];
            one[self.types] = 1.0;
            let levels = dense_solve(matrix.clone(), one)?;
            let Some(entering) = self.entering(&duals, pivot >= FREE_PIVOTS) else {
                return Some(self.mix(&duals, &levels));
            };
            let direction = dense_solve(matrix, self.column(entering))?;
            let leaving = self.leaving(&levels, &direction, pivot >= FREE_PIVOTS)?;
            self.basis[leaving] = entering;
        }
        None
    }

    fn mix(&self, duals: &[f64], levels: &[f64]) -> Mix {
        let mut weights: Vec<(usize, f64)> = self
            .basis
            .iter()
            .zip(levels)
            .filter(|&(&var, &level)| var >= self.types && level > 0.0)
            .map(|(&var, &level)| (var - self.types, level))
            .collect();
        weights.sort_unstable_by_key(|&(plan, _)| plan);
        Mix {
            value: weights.iter().map(|&(plan, w)| w * self.values[plan]).sum(),
            prices: duals[..self.types].iter().map(|y| (-y).max(0.0)).collect(),
            weights,
        }
    }

    fn cost(&self, var: usize) -> f64 {
        var.checked_sub(self.types)
            .map_or(0.0, |plan| self.values[plan])
    }

    fn column(&self, var: usize) -> Vec<f64> {
        if let Some(plan) = var.checked_sub(self.types) {
            return self.columns[plan].clone();
        }
        let mut column = vec![0.0; self.types + 1];
        column[var] = -1.0;
        column
    }

    fn matrix(&self, transposed: bool) -> Vec<Vec<f64>> {
        let columns: Vec<Vec<f64>> = self.basis.iter().map(|&var| self.column(var)).collect();
        if transposed {
            return columns;
        }
        (0..=self.types)
            .map(|row| columns.iter().map(|column| column[row]).collect())
            .collect()
    }

    /// Returns the variable with the largest gain, or, if `first` is set, the first variable with a gain.
    fn entering(&self, duals: &[f64], first: bool) -> Option<usize> {
        let mut best: Option<(usize, f64)> = None;
        for var in 0..self.types + self.values.len() {
            let gain = if var < self.types {
                duals[var]
            } else {
                let plan = var - self.types;
                let priced = self.columns[plan].iter().zip(duals);
                self.values[plan] - priced.map(|(entry, y)| entry * y).sum::<f64>()
            };
            // The gain of a basic variable is only a rounding error.
            let is_basic = || self.basis.contains(&var);
            if gain > NOISE && !is_basic() && best.is_none_or(|(_, most)| gain > most) {
                best = Some((var, gain));
                if first {
                    break;
                }
            }
        }
        best.map(|(var, _)| var)
    }

    /// Returns the basic variable that reaches 0 first. If several do so (up to noise), it returns the one with the
    /// largest pivot, or the one with the lowest index if `lowest` is set.
    fn leaving(&self, levels: &[f64], direction: &[f64], lowest: bool) -> Option<usize> {
        let falls = || levels.iter().zip(direction).enumerate();
        let falls = || falls().filter(|(_, (_, slope))| **slope > PIVOT);
        let far = falls().map(|(_, (level, slope))| (level.max(0.0) + NOISE) / slope);
        let far = far.fold(f64::INFINITY, f64::min);
        let first = falls().filter(|(_, (level, slope))| level.max(0.0) <= far * **slope);
        let better = |a: usize, b: usize| {
            let is_lower = self.basis[b] < self.basis[a];
            let order = direction[b].total_cmp(&direction[a]);
            let is_better = if lowest {
                is_lower
            } else {
                order.is_gt() || (order.is_eq() && is_lower)
            };
            if is_better { b } else { a }
        };
        first.map(|(place, _)| place).reduce(better)
    }
}

/// Solves a small dense system by elimination with row pivots; `None` if it is singular.
fn dense_solve(mut matrix: Vec<Vec<f64>>, mut right: Vec<f64>) -> Option<Vec<f64>> {
    let size = right.len();
    for step in 0..size {
        let pivot = (step..size).reduce(|a, b| {
            if matrix[b][step].abs() > matrix[a][step].abs() {
                b
            } else {
                a
            }
        })?;
        if matrix[pivot][step].abs() < f64::MIN_POSITIVE {
            return None;
        }
        matrix.swap(step, pivot);
        right.swap(step, pivot);
        let (done, below) = matrix.split_at_mut(step + 1);
        let row = &done[step];
        for (offset, other) in below.iter_mut().enumerate() {
            let factor = other[step] / row[step];
            for column in step..size {
                other[column] -= factor * row[column];
            }
            right[step + 1 + offset] -= factor * right[step];
        }
    }
    for step in (0..size).rev() {
        let known: f64 = (step + 1..size).map(|j| matrix[step][j] * right[j]).sum();
        right[step] = (right[step] - known) / matrix[step][step];
    }
    Some(right)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_plans_are_mixed_until_nothing_lacks() {
        // The first plan leaves half of the type idle, and the second needs twice the GPUs of the type. The mix
        // therefore has two parts of the first plan and one of the second.
        let mut master = Master::new(1.0, &[0.5]);
        master.add(4.0, &[-1.0]);
        let mix = master.solve().expect("the first plan lacks nothing");
        assert!((mix.value - 2.0).abs() < 1e-12);
        assert_eq!(mix.weights.len(), 2);
        assert!((mix.weights[1].1 - 1.0 / 3.0).abs() < 1e-12);
        // The value z + left x price is equal for both plans: 1 + p / 2 = 4 - p.
        assert!((mix.prices[0] - 2.0).abs() < 1e-12);
    }

    #[test]
    fn a_plan_that_lacks_nothing_and_reaches_more_replaces_the_first() {
        let mut master = Master::new(1.0, &[0.0, 0.0]);
        let better = master.add(3.0, &[0.25, 0.0]);
        let mix = master.solve().expect("feasible");
        assert_eq!(mix.weights, [(better, 1.0)]);
        assert!(mix.prices.iter().all(|&price| price >= 0.0));
    }

    #[test]
    fn a_system_by_hand() {
        let found = dense_solve(vec![vec![0.0, 2.0], vec![1.0, 1.0]], vec![4.0, 5.0]);
        assert_eq!(found, Some(vec![3.0, 2.0]));
        assert_eq!(dense_solve(vec![vec![0.0]], vec![1.0]), None);
    }
}
