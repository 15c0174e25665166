//! The prices of GPUs, which rise exponentially with the share of the server's GPUs that are given out.
//!
//! The price bounds are minima and maxima of constants of the active jobs; these constants are kept in heaps. An
//! arrival usually costs O(types); the completion of a job at the top of a heap costs O(log jobs). The values in one of
//! the heaps depend on the epoch, so this heap is rebuilt when the epoch changes.

use super::facts::{Facts, TypeFacts};
use super::params::{HadarParams, Terms};
use crate::kit::Servers;
use gangline_engine::PolicyError;
use gangline_model::{JobId, NANOS_PER_SECOND, SimSpan, SimTime};
use std::collections::{BTreeMap, BinaryHeap};

/// The maximum of a quantity over all active jobs. Outdated entries are removed when they reach the top of the heap, or
/// all at once when they make up most of it.
#[derive(Debug, Default)]
struct Largest {
    heap: BinaryHeap<(u64, JobId)>,
}

impl Largest {
    fn of(active: &BTreeMap<JobId, Facts>, number: impl Fn(&Facts) -> Option<u64>) -> Self {
        let entry = |facts: &Facts| Some((number(facts)?, facts.job));
        let heap = active.values().filter_map(entry).collect();
        Self { heap }
    }

    fn get(
        &mut self,
        active: &BTreeMap<JobId, Facts>,
        number: impl Fn(&Facts) -> Option<u64>,
    ) -> Option<u64> {
        if self.heap.len() > 2 * active.len() + 16 {
            *self = Self::of(active, &number);
        }
        while let Some(&(top, job)) = self.heap.peek() {
            if active.get(&job).and_then(&number) == Some(top) {
                return Some(top);
            }
            self.heap.pop();
        }
        None
    }
}

/// Time interval for which the lowest price is computed.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Epoch {
    base: SimTime,
    /// Length in slots: a power of two, unless the horizon is fixed.
    slots: f64,
    /// `T_end` in ns. The integer type is wider than the type of times, because the number of slots can be very large.
    end_ns: i128,
}

/// The state from which prices are computed.
#[derive(Debug)]
pub(crate) struct Pricing {
    epoch: Option<Epoch>,
    /// Total number of slots that the active jobs need on their slowest types.
    slots: u128,
    /// Maximum of `U(t_min) / W` for each type.
    highest: Vec<Largest>,
    /// Minimum of `t_max x W` over the active jobs.
    longest: Largest,
    /// Minimum of `U(T_end - a) / (t_max x W)` in the current epoch.
    lowest: Largest,
}

/// The prices for one decision.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Prices {
    /// `U_min`.
    pub(super) floor: f64,
    /// `U_max` by type.
    pub(super) ceiling: Vec<f64>,
    /// For each group and each number of free GPUs on a server, the price of a GPU.
    table: Vec<Vec<f64>>,
}

impl Prices {
    /// Creates the prices between these bounds.
    pub(super) fn between(floor: f64, ceiling: Vec<f64>, servers: &Servers) -> Self {
        let table = servers.groups.iter().map(|group| {
            let (size, ceiling) = (group.capacity, ceiling[group.gpu_type.index()]);
            let price = |free| price(floor, ceiling, size - free, size);
            (0..=size).map(price).collect()
        });
        Self {
            floor,
            table: table.collect(),
            ceiling,
        }
    }

    /// Returns the price of a GPU if its server is in this group and has this number of free GPUs.
    #[inline]
    pub(super) fn of(&self, group: usize, free: u32) -> f64 {
        self.table[group][free as usize]
    }
}

/// Returns the price of a GPU if `used` of the `capacity` GPUs on its server are given out.
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
            highest: (0..types).map(|_| Largest::default()).collect(),
            longest: Largest::default(),
            lowest: Largest::default(),
        }
    }

    // The heaps contain the bits of positive floats, which have the same order as the floats. To find a minimum, the
    // bits are inverted.

    fn low_of(epoch: &Epoch, facts: &Facts) -> u64 {
        let seconds = (epoch.end_ns - i128::from(facts.arrival.0)) as f64 / NANOS_PER_SECOND;
        !(facts.numerator / seconds / facts.gpu_slots_max()).to_bits()
    }

    fn high_of(facts: &Facts, one: &TypeFacts) -> u64 {
        (facts.numerator / one.time_s / f64::from(facts.gpus)).to_bits()
    }

    fn long_of(facts: &Facts) -> u64 {
        !facts.gpu_slots_max().to_bits()
    }

    /// Adds a job that becomes active.
    pub(crate) fn add(&mut self, facts: &Facts) {
        self.slots = self.slots.saturating_add(facts.slots_max);
        for one in &facts.types {
            let number = Self::high_of(facts, one);
            self.highest[one.id.index()].heap.push((number, facts.job));
        }
        self.longest.heap.push((Self::long_of(facts), facts.job));
        if let Some(epoch) = &self.epoch {
            let number = Self::low_of(epoch, facts);
            self.lowest.heap.push((number, facts.job));
        }
    }

    /// Removes a job that is no longer active.
    pub(crate) fn remove(&mut self, facts: &Facts) {
        self.slots = self.slots.saturating_sub(facts.slots_max);
    }

    /// Computes `U_min`, and `U_max` for each type, for a cluster in which `gpus` GPUs are up. At least one job must be
    /// active.
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
        let low = |facts: &Facts| Some(Self::low_of(&epoch, facts));
        if self.epoch != Some(epoch) {
            self.lowest = Largest::of(active, low);
            self.epoch = Some(epoch);
        }
        let smallest = |bits: Option<u64>| bits.map_or(0.0, |bits| f64::from_bits(!bits));
        let longest = smallest(self.longest.get(active, |facts| Some(Self::long_of(facts))));
        let lowest = smallest(self.lowest.get(active, low));
        let gpus = f64::from(gpus.max(1));
        let floor = terms.umin_factor * longest / (epoch.slots * gpus) * lowest;
        let highest = self.highest.iter_mut().enumerate().map(|(at, numbers)| {
            let high = |facts: &Facts| {
                let there = facts.types.iter().filter(|one| one.id.index() == at);
                there.map(|one| Self::high_of(facts, one)).max()
            };
            f64::from_bits(numbers.get(active, high).unwrap_or(0))
        });
        Ok((floor, highest.collect()))
    }

    /// Computes the prices at an instant; at least one job must be active.
    pub(super) fn prices(
        &mut self,
        params: &HadarParams,
        now: SimTime,
        active: &BTreeMap<JobId, Facts>,
        servers: &Servers,
    ) -> Result<Prices, PolicyError> {
        let (floor, ceiling) = self.bounds(&params.terms(), now, active, servers.up_total())?;
        Ok(Prices::between(floor, ceiling, servers))
    }

    /// Returns the epoch to use if the horizon is not fixed. The current epoch stays in use unless it is too short or
    /// much too long.
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
                "none, or at least the age of the oldest job, {} s",
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
