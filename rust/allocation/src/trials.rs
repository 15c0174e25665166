//! Finds the smallest finish-time fairness rho with a series of max-min programs. These are needed if classes share
//! GPUs, because the price method does not support pairs.
//!
//! Each trial of rho is a program whose floors rise or fall together as far as possible. The multipliers of the floors
//! take the place of the prices.

use super::model::SolverError;
use super::rho::{Fairness, TRIALS};
use super::search::affordable;
use super::space::{Method, Plan, Space};

/// Two trials count as equal if their relative difference is at most this limit.
pub(crate) const SAME: f64 = 1e-11;

impl Fairness<'_> {
    /// Returns the smallest rho. The multipliers of each max-min program show which values of rho no plan can reach.
    /// `cheap` is a rho that can be reached. Trials count as equal if their relative difference is at most `same`.
    ///
    /// # Errors
    /// Returns the errors of [`Self::solve`].
    pub(crate) fn search(
        &self,
        method: &mut dyn Method,
        space: &Space<'_>,
        cheap: f64,
        same: f64,
    ) -> Result<Plan, SolverError> {
        let fastest = self.fastest(&space.pairs);
        let dearest = self.largest(&fastest);
        let mut rho = cheap;
        for _ in 0..TRIALS {
            let measure = self.measure(space, rho);
            let plan = method.max_min(space, &measure)?;
            let next = affordable(dearest.min(cheap), cheap, |rho| {
                let (mut demand, mut slope) = (0.0, 0.0);
                for (class, weight) in plan.weights.iter().enumerate() {
                    let (rate, change) = self.rate(class, rho, fastest[class]);
                    demand += weight * rate * measure[class];
                    slope += weight * change * measure[class];
                }
                (demand - plan.z, slope)
            });
            if (next - rho).abs() <= same * rho {
                return Ok(Plan { z: rho, ..plan });
            }
            rho = next;
        }
        Err(SolverError::Gap {
            gap: 1.0 - dearest / rho,
            evaluations: TRIALS,
        })
    }

    /// Returns a factor for each class: in a plan that reaches the given rho, the factor times the rate must be at
    /// least 1.
    pub(crate) fn measure(&self, space: &Space<'_>, rho: f64) -> Vec<f64> {
        let asked = self.asked(rho, &self.fastest(&space.pairs));
        asked.into_iter().map(|own| 1.0 / own).collect()
    }
}
