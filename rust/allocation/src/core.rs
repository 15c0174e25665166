//! Solves the linear programs behind allocations with the methods of this crate: the price method finds the value of an
//! objective, and a simplex method finds the plan.

use super::choose::{Choose, Chosen, Pair};
use super::dual::MaxMin;
use super::levels::Filling;
use super::model::SolverError;
use super::program::{TwoStages, by_class, within};
use super::rho::Fairness;
use super::space::{Method, Plan, Space, Spent, Water};
use super::trials::SAME;

/// Maximum number of evaluations of the price method.
pub(crate) const EVALUATIONS: u32 = 1_000;
/// Relative gap of the price method if its plan is the final plan.
const GAP: f64 = 1e-9;

/// Solves programs without an external solver.
#[derive(Default)]
pub(crate) struct Core {
    /// Solver statistics.
    pub spent: Spent,
    /// Whether the plan of the price method is the final plan. In that case, there are no pairs.
    pub is_prices: bool,
}

impl Core {
    fn count(&mut self, programs: u32, iterations: u32) {
        self.spent.programs += programs;
        self.spent.iterations += iterations;
    }

    fn by_prices(&mut self, space: &Space<'_>, measure: &[f64]) -> Result<Plan, SolverError> {
        let program = MaxMin {
            rates: &by_class(&space.rates, measure),
            gangs: space.gangs,
            members: space.members,
            capacity: space.capacity,
        };
        let found = program.solve(GAP, EVALUATIONS)?;
        self.count(1, found.evaluations);
        let mut plan = plan_of(space, found.shares);
        let reached = space.rates_of(&plan).into_iter().zip(measure);
        plan.z = reached.fold(f64::INFINITY, |least, (rate, own)| least.min(rate * own));
        Ok(plan)
    }

    /// Returns the plan with the largest worth among those that reach the floors.
    fn above(
        &mut self,
        space: &Space<'_>,
        floors: &[f64],
        prices: &[f64],
    ) -> Result<Plan, SolverError> {
        let chosen = stages(space, &space.worth).second_stage(floors, prices, false)?;
        self.count(1, chosen.steps);
        Ok(chosen.into())
    }
}

impl From<Chosen> for Plan {
    fn from(chosen: Chosen) -> Self {
        Self {
            z: chosen.value,
            shares: chosen.shares,
            together: chosen.together,
            weights: chosen.weights,
        }
    }
}

fn stages<'a>(space: &'a Space<'_>, measure: &'a [f64]) -> TwoStages<'a> {
    TwoStages {
        rates: &space.rates,
        measure,
        worth: &space.worth,
        gangs: space.gangs,
        members: space.members,
        capacity: space.capacity,
        pairs: &space.pairs,
    }
}

/// Creates a plan without pairs from shares, after moving them inside their bounds.
fn plan_of(space: &Space<'_>, mut shares: Vec<f64>) -> Plan {
    let (gangs, members) = (space.gangs, space.members);
    within(&mut shares, &mut [], &[], gangs, members, space.capacity);
    Plan {
        shares,
        ..Plan::default()
    }
}

impl Method for Core {
    fn max_min(&mut self, space: &Space<'_>, measure: &[f64]) -> Result<Plan, SolverError> {
        if self.is_prices {
            return self.by_prices(space, measure);
        }
        let staged = stages(space, measure).solve(EVALUATIONS)?;
        self.count(2, staged.iterations);
        Ok(Plan {
            z: staged.z,
            shares: staged.shares,
            together: staged.together,
            weights: staged.weights,
        })
    }

    fn most(
        &mut self,
        space: &Space<'_>,
        gains: &[f64],
        then: Option<&[f64]>,
    ) -> Result<Plan, SolverError> {
        let program = Choose {
            rates: &space.rates,
            gains,
            then,
            gangs: space.gangs,
            members: space.members,
            capacity: space.capacity,
            floors: &vec![0.0; space.gangs.len()],
            prices: &[],
            pairs: &space.pairs,
            rises: false,
        };
        let chosen = program.solve()?;
        self.count(1 + u32::from(then.is_some()), chosen.steps);
        let mut plan = Plan::from(chosen);
        within(
            &mut plan.shares,
            &mut plan.together,
            &space.pairs,
            space.gangs,
            space.members,
            space.capacity,
        );
        Ok(plan)
    }

    fn least_rho(
        &mut self,
        space: &Space<'_>,
        fairness: &Fairness<'_>,
    ) -> Result<Plan, SolverError> {
        let found = fairness.solve(EVALUATIONS)?;
        self.count(found.programs, found.evaluations);
        if !space.pairs.is_empty() {
            return fairness.search(self, space, found.rho, SAME);
        }
        let plan = if self.is_prices {
            plan_of(space, found.shares)
        } else {
            self.above(space, &found.asked, &found.prices)?
        };
        Ok(Plan {
            z: found.rho,
            ..plan
        })
    }

    fn fill(
        &mut self,
        space: &Space<'_>,
        water: &Water<'_>,
    ) -> Result<(Vec<f64>, Plan), SolverError> {
        let as_level = |pair: &Pair| {
            let [a, b] = pair.classes.map(|class| water.worth[class]);
            let rates = [a * pair.rates[0], b * pair.rates[1]];
            Pair {
                rates,
                gain: rates[0] + rates[1],
                ..*pair
            }
        };
        let program = Filling {
            rates: &by_class(&space.rates, water.worth),
            gangs: space.gangs,
            members: space.members,
            capacity: space.capacity,
            pairs: &space.pairs.iter().map(as_level).collect::<Vec<_>>(),
            speeds: water.speeds,
            is_even: water.is_even,
        };
        let found = program.solve()?;
        self.count(found.rises, found.steps);
        if let Some(chosen) = found.plan {
            self.count(1, 0);
            let mut plan = Plan::from(chosen);
            within(
                &mut plan.shares,
                &mut plan.together,
                &space.pairs,
                space.gangs,
                space.members,
                space.capacity,
            );
            return Ok((found.levels, plan));
        }
        let floors = found.levels.iter().zip(water.worth);
        let floors: Vec<f64> = floors.map(|(level, worth)| level / worth).collect();
        // At these prices, all GPUs cost the same, so the simplex method starts from the plan that uses the fewest
        // GPUs.
        let plan = self.above(space, &floors, space.capacity)?;
        Ok((found.levels, plan))
    }
}
