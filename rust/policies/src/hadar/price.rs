//! Prices of GPUs: they rise exponentially with the share of a server that is given out.
//!
//! What the prices rest on are minima and maxima of constants of the active jobs, kept in ordered sets: O(types x
//! log jobs) per arrival and completion. The constants of one set change with the epoch; then it is rebuilt.

use super::facts::{Facts, TypeFacts};
use super::params::HadarParams;
use super::servers::Servers;
use gangline_engine::PolicyError;
use gangline_model::{JobId, NANOS_PER_SECOND, SimSpan, SimTime};
use std::collections::{BTreeMap, BTreeSet};

/// A positive number of a job; positive numbers are ordered as their bits.
type Number = (u64, JobId);

#[inline]
fn value(number: Option<&Number>) -> f64 {
    number.map_or(0.0, |number| f64::from_bits(number.0))
}

/// The stretch of time over which the lowest price is worked out.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Epoch {
    base: SimTime,
    /// Its length in slots: a power of two, unless the horizon is fixed.
    slots: f64,
    /// `T_end`, ns; wider than time, as slots may be many.
    end_ns: i128,
}

/// Parameters of the bounds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms<'a> {
    pub(crate) policy: &'a str,
    pub(crate) round: SimSpan,
    pub(crate) umin_factor: f64,
    pub(crate) horizon: Option<SimSpan>,
}

/// What prices rest on.
#[derive(Debug)]
pub(crate) struct Pricing {
    epoch: Option<Epoch>,
    /// Sum of the slots that the active jobs need on their slowest types.
    slots: u128,
    /// By type, `U(t_min) / W`.
    highest: Vec<BTreeSet<Number>>,
    /// `t_max x W`.
    longest: BTreeSet<Number>,
    /// `U(T_end - a) / (t_max x W)` in the present epoch.
    lowest: BTreeSet<Number>,
}

/// The prices of one decision.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Prices {
    /// `U_min`.
    pub(super) floor: f64,
    /// `U_max` by type.
    pub(super) ceiling: Vec<f64>,
    /// By group and free GPUs of a server.
    table: Vec<Vec<f64>>,
}

impl Prices {
    /// Price of a GPU of a server in a group with so many free GPUs.
    #[inline]
    pub(super) fn of(&self, group: usize, free: u32) -> f64 {
        self.table[group][free as usize]
    }
}

/// Price of a GPU of a server of which `used` of `capacity` GPUs are given out.
pub(crate) fn price(floor: f64, ceiling: f64, used: u32, capacity: u32) -> f64 {
    if ceiling <= floor {
        return floor;
    }
    floor * libm::pow(ceiling / floor, f64::from(used) / f64::from(capacity))
}

impl Pricing {
    pub(crate) fn new(types: usize) -> Self {
        Self {
            epoch: None,
            slots: 0,
            highest: vec![BTreeSet::new(); types],
            longest: BTreeSet::new(),
            lowest: BTreeSet::new(),
        }
    }

    fn low_of(epoch: &Epoch, facts: &Facts) -> Number {
        let seconds = (epoch.end_ns - i128::from(facts.arrival.0)) as f64 / NANOS_PER_SECOND;
        let low = facts.numerator / seconds / facts.gpu_slots_max();
        (low.to_bits(), facts.job)
    }

    fn high_of(facts: &Facts, one: &TypeFacts) -> Number {
        let best = facts.numerator / one.time_s / f64::from(facts.gpus);
        (best.to_bits(), facts.job)
    }

    fn long_of(facts: &Facts) -> Number {
        (facts.gpu_slots_max().to_bits(), facts.job)
    }

    /// A job becomes active.
    pub(crate) fn add(&mut self, facts: &Facts) {
        self.slots = self.slots.saturating_add(facts.slots_max);
        for one in &facts.types {
            self.highest[one.id.index()].insert(Self::high_of(facts, one));
        }
        self.longest.insert(Self::long_of(facts));
        if let Some(epoch) = &self.epoch {
            self.lowest.insert(Self::low_of(epoch, facts));
        }
    }

    /// A job ended.
    pub(crate) fn remove(&mut self, facts: &Facts) {
        self.slots = self.slots.saturating_sub(facts.slots_max);
        for one in &facts.types {
            self.highest[one.id.index()].remove(&Self::high_of(facts, one));
        }
        self.longest.remove(&Self::long_of(facts));
        if let Some(epoch) = &self.epoch {
            self.lowest.remove(&Self::low_of(epoch, facts));
        }
    }

    /// `U_min`, and `U_max` by type, at an instant with active jobs and so many GPUs.
    ///
    /// # Errors
    /// [`PolicyError::Parameter`] if the horizon is shorter than the age of the oldest job.
    pub(crate) fn bounds(
        &mut self,
        terms: &Terms<'_>,
        now: SimTime,
        active: &BTreeMap<JobId, Facts>,
        gpus: u32,
    ) -> Result<(f64, Vec<f64>), PolicyError> {
        let oldest = active.values().next().map_or(now, |facts| facts.arrival);
        let epoch = match terms.horizon {
            Some(horizon) => fixed_epoch(terms, horizon, now, oldest)?,
            None => self.next_epoch(terms, now, oldest),
        };
        if self.epoch != Some(epoch) {
            let lows = active.values().map(|facts| Self::low_of(&epoch, facts));
            self.lowest = lows.collect();
            self.epoch = Some(epoch);
        }
        let gpus = f64::from(gpus.max(1));
        let floor = terms.umin_factor * value(self.longest.first()) / (epoch.slots * gpus)
            * value(self.lowest.first());
        let highest = self.highest.iter();
        Ok((
            floor,
            highest.map(|numbers| value(numbers.last())).collect(),
        ))
    }

    /// Prices at an instant with active jobs.
    ///
    /// # Errors
    /// Those of [`Pricing::bounds`].
    pub(super) fn prices(
        &mut self,
        params: &HadarParams,
        now: SimTime,
        active: &BTreeMap<JobId, Facts>,
        servers: &Servers,
    ) -> Result<Prices, PolicyError> {
        let (floor, ceiling) = self.bounds(&params.terms(), now, active, servers.up_total())?;
        let table = servers.groups.iter().map(|group| {
            let (size, ceiling) = (group.capacity, ceiling[group.gpu_type.index()]);
            let price = |free| price(floor, ceiling, size - free, size);
            (0..=size).map(price).collect()
        });
        Ok(Prices {
            floor,
            table: table.collect(),
            ceiling,
        })
    }

    /// The epoch without a fixed horizon: the present one as long as it is neither too short nor much too long.
    fn next_epoch(&self, terms: &Terms<'_>, now: SimTime, oldest: SimTime) -> Epoch {
        let round = terms.round.0;
        let need = |base: SimTime| {
            let elapsed = (now - base).0;
            let past = elapsed / round + i64::from(elapsed % round > 0);
            (past as u128).saturating_add(self.slots)
        };
        let fresh = need(oldest);
        if let Some(epoch) = self.epoch {
            let slots = epoch.slots as u128;
            if need(epoch.base) <= slots && fresh.saturating_mul(4) > slots {
                return epoch;
            }
        }
        let slots = fresh.checked_next_power_of_two().unwrap_or(1 << 127);
        let length_ns = i128::try_from(slots)
            .unwrap_or(i128::MAX)
            .saturating_mul(i128::from(round));
        Epoch {
            base: oldest,
            slots: slots as f64,
            end_ns: length_ns.saturating_add(i128::from(oldest.0)),
        }
    }
}

fn fixed_epoch(
    terms: &Terms<'_>,
    horizon: SimSpan,
    now: SimTime,
    oldest: SimTime,
) -> Result<Epoch, PolicyError> {
    let age = now - oldest;
    if age > horizon {
        return Err(PolicyError::Parameter {
            policy: terms.policy.to_owned(),
            field: "horizon_s".to_owned(),
            value: horizon.seconds().to_string(),
            expected: format!(
                "at least {} s, the age of the oldest job, or none",
                age.seconds()
            ),
        });
    }
    Ok(Epoch {
        base: oldest,
        slots: horizon.seconds() / terms.round.seconds(),
        end_ns: i128::from((oldest + horizon).0),
    })
}
