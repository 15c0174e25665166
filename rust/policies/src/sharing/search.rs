//! Finds GPUs for one gang on one type. Either all GPUs are free, or some are shared. Shared GPUs are chosen by first
//! fit (SJF-FFS) or by best benefit (SJF-BSBF).

use super::params::{BenefitParams, FreePick, Gather, SubBatchRule};
use super::partners::Pair;
use super::partners::{Asking, Partner, Partners};
use super::residents::{Residents, slots};
use crate::kit::Seen;
use gangline_engine::{ClusterView, FreeIndex, PolicyError};
use gangline_model::{GpuSet, GpuTypeId, JobId, ServerId, gpus_in, mask_of_lowest};
use smallvec::SmallVec;
use std::collections::BTreeMap;

/// A new job, considered on one of its types.
#[derive(Clone, Copy, Debug)]
pub(super) struct Newcomer<'a> {
    pub(super) view: &'a ClusterView<'a>,
    pub(super) free: &'a FreeIndex,
    pub(super) residents: &'a Residents,
    pub(super) gather: Gather,
    pub(super) seen: Seen,
    pub(super) job: JobId,
    pub(super) gpu_type: GpuTypeId,
}

/// GPUs for the job, and its sub-batch; 0 means the full batch.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) gpus: GpuSet,
    pub(super) sub_batch: u32,
}

/// The servers that are searched for shared GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// All servers.
    All,
    /// A single server that has enough GPUs, counting free and shared ones together.
    OneServer,
}

/// The chosen GPUs, and their score: the mean completion time, averaged over the shared GPUs.
struct Choice {
    gpus: GpuSet,
    score: f64,
}

/// Returns the sub-batches in the order in which they are tried: 0 for the full batch, then halves of the batch down to
/// the minimum.
pub(super) fn ladder(batch: u32, least: Option<u32>) -> SmallVec<[u32; 8]> {
    let mut ladder = SmallVec::from_slice(&[0]);
    let Some(least) = least else { return ladder };
    let halves = (1..32).map(|i| u64::from(batch).div_ceil(1 << i) as u32);
    let mut previous = batch;
    for half in halves {
        if half >= previous || half < least {
            break;
        }
        ladder.push(half);
        previous = half;
    }
    ladder
}

impl Newcomer<'_> {
    fn need(&self) -> u32 {
        self.view.jobs().gpus(self.job)
    }

    fn free_total(&self) -> u32 {
        self.free.pool(self.gpu_type).free_total()
    }

    /// Returns the maximum memory that a resident may hold and still leave enough for the new job with a sub-batch;
    /// `None` if even an empty GPU has too little memory.
    fn room(&self, sub_batch: u32) -> Option<u64> {
        let capacity = self.view.cluster().gpu_types()[self.gpu_type.index()].memory_bytes;
        capacity.checked_sub(self.view.memory_bytes(self.job, sub_batch))
    }

    /// Returns whether there are enough GPUs for a sub-batch, regardless of the gain.
    pub(super) fn has_room(&self, sub_batch: u32) -> bool {
        let open = |room| self.residents.open_below(self.gpu_type, room);
        let shared = self.room(sub_batch).map_or(0, open);
        self.free_total() + shared >= self.need()
    }

    /// Returns free GPUs for the whole gang, if there are enough.
    pub(super) fn exclusive(&self, pick: FreePick) -> Option<GpuSet> {
        let need = self.need();
        let pool = self.free.pool(self.gpu_type);
        if pool.free_total() < need {
            return None;
        }
        let mut gang = Gang::new(need);
        match pick {
            FreePick::BestFit => match pool.best_fit(need) {
                Some(at) => _ = gang.take(pool.server(at), pool.mask(at)),
                None => {
                    for (at, _) in pool.all_servers().descending() {
                        gang.take(pool.server(at), pool.mask(at));
                        if gang.missing == 0 {
                            break;
                        }
                    }
                }
            },
            FreePick::FewResidents => {
                for server in self.residents.servers_by_jobs(self.gpu_type) {
                    gang.take(server, self.free.free_mask(server));
                    if gang.missing == 0 {
                        break;
                    }
                }
            }
        }
        Some(gang.gpus)
    }

    /// Returns all free GPUs of the type; there are fewer than the gang needs.
    fn with_free(&self) -> Gang {
        let mut gang = Gang::new(self.need());
        let pool = self.free.pool(self.gpu_type);
        for (at, _) in pool.all_servers().at_least(1) {
            gang.take(pool.server(at), pool.mask(at));
        }
        gang
    }

    /// Fills the gang with the free GPUs, and then with the first GPUs that have one resident. With
    /// [`Gather::ServerFirst`], a single server that has enough GPUs is preferred.
    pub(super) fn first_fit(&self) -> Option<Found> {
        if !self.has_room(0) {
            return None;
        }
        let on_server = match self.gather {
            Gather::Cluster => None,
            Gather::ServerFirst => self.first_server(),
        };
        let mut gang = on_server.unwrap_or_else(|| self.with_free());
        for server in self.residents.servers_by_jobs(self.gpu_type) {
            if gang.missing == 0 {
                break;
            }
            gang.take(server, self.eligible(server));
        }
        (gang.missing == 0).then_some(Found {
            gpus: gang.gpus,
            sub_batch: 0,
        })
    }

    /// Returns the slots of a server with exactly one job, if this job leaves enough memory for the new job and the two
    /// may share a GPU.
    fn eligible(&self, server: ServerId) -> u64 {
        let room = self.room(0);
        let fits = |&slot: &u32| {
            let other = self.residents.sole(server, slot);
            let stay = self.residents.stay(other).expect("a resident");
            room.is_some_and(|room| stay.bytes <= room)
                && self.view.xi(self.job, other, self.gpu_type).is_some()
                && self.view.xi(other, self.job, self.gpu_type).is_some()
        };
        let one = slots(self.residents.one_on(server));
        one.filter(fits).fold(0, |mask, slot| mask | 1 << slot)
    }

    /// Returns GPUs for the gang on a single server, some of them shared, if a server has enough GPUs.
    fn first_server(&self) -> Option<Gang> {
        let need = self.need();
        let pool = self.free.pool(self.gpu_type);
        let enough = pool.servers().iter().filter_map(|&server| {
            let free = self.free.free_mask(server);
            let one = self.residents.one_on(server);
            if one == 0 || gpus_in(free) + gpus_in(one) < need {
                return None;
            }
            let shared = self.eligible(server);
            let is_enough = shared != 0 && gpus_in(free) + gpus_in(shared) >= need;
            let order = (gpus_in(free), self.residents.jobs_on(server), server);
            is_enough.then_some((order, free, shared))
        });
        let ((_, _, server), free, shared) = enough.min_by_key(|&(order, _, _)| order)?;
        let mut gang = Gang::new(need);
        gang.take(server, free);
        gang.take(server, shared);
        Some(gang)
    }

    /// Returns the request for partners of the new job, given its sub-batch and the time that it would need alone.
    fn asking(&self, rule: &BenefitParams, new_s: f64, sub_batch: u32) -> Option<Asking<'_>> {
        let view = self.view;
        Some(Asking {
            view,
            job: self.job,
            gpu_type: self.gpu_type,
            new_s,
            inflation: view.inflation(self.job, sub_batch, self.gpu_type),
            room: self.room(sub_batch)?,
            seen: self.seen,
            partner_time: rule.partner_time,
        })
    }

    /// Returns the GPUs and the sub-batch that the rule prefers: those with the lowest mean completion time, or those
    /// with the largest sub-batch at which sharing pays off.
    pub(super) fn best_benefit(
        &self,
        rule: &BenefitParams,
        reach: Reach,
    ) -> Result<Option<Found>, PolicyError> {
        let view = self.view;
        let ladder = ladder(view.jobs().batch_size(self.job), rule.min_sub_batch);
        if !ladder.last().is_some_and(|&least| self.has_room(least)) {
            return Ok(None);
        }
        let rate = view.base_rate(self.job, self.gpu_type);
        let new_s = self.seen.seconds_at(view, self.job, rate)?;
        let mut best: Option<(f64, Found)> = None;
        for sub_batch in ladder {
            let Some(asking) = self.asking(rule, new_s, sub_batch) else {
                continue;
            };
            let shared = self.residents.open_below(self.gpu_type, asking.room);
            let has_room = self.free_total() + shared >= self.need();
            let choice = has_room
                .then(|| self.choose(rule, reach, &asking))
                .flatten();
            if let Some(Choice { gpus, score }) = choice {
                let found = Found { gpus, sub_batch };
                if rule.sub_batch_rule == SubBatchRule::Largest {
                    return Ok(Some(found));
                }
                if best.as_ref().is_none_or(|&(least, _)| score < least) {
                    best = Some((score, found));
                }
            }
            if shared == self.residents.open(self.gpu_type) {
                break;
            }
        }
        Ok(best.map(|(_, found)| found))
    }

    /// Returns the time that the new job adds on the given GPUs: its own time plus the delay of its partners, averaged
    /// over the shared GPUs.
    pub(super) fn added_s(&self, rule: &BenefitParams, found: &Found) -> Result<f64, PolicyError> {
        let view = self.view;
        let rate = view.rate_alone(self.job, &found.gpus);
        let new_s = self.seen.seconds_at(view, self.job, rate)?;
        let mut partners: BTreeMap<JobId, u32> = BTreeMap::new();
        for one in found.gpus.by_server() {
            for slot in slots(one.mask & self.residents.one_on(one.server)) {
                let partner = self.residents.sole(one.server, slot);
                *partners.entry(partner).or_default() += 1;
            }
        }
        let asking = self.asking(rule, new_s, found.sub_batch);
        let asking = asking.expect("memory was enough");
        if partners.is_empty() {
            return Ok(asking.new_s);
        }
        let base_rate = view.base_rate(self.job, self.gpu_type);
        let base_s = self.seen.seconds_at(view, self.job, base_rate)?;
        let mut ranked = Vec::with_capacity(partners.len());
        for (partner, gpus) in partners {
            let stay = self.residents.stay(partner).expect("a resident");
            let beside = asking
                .beside(partner, stay.xi)
                .expect("partners may share with the new job");
            let pair = asking.as_seen(partner, beside.until(stay.finish, view.now()));
            let rank = Pair {
                new_s: base_s,
                ..pair
            }
            .t_con();
            ranked.push((rank, partner, 2.0 * pair.t_con() - pair.resident_s, gpus));
        }
        // The times are summed in the order in which the search takes the partners, because sums of floats depend on
        // the order.
        ranked.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let mut counted = Counted::default();
        for (_, _, added_s, gpus) in ranked {
            counted.add(added_s, gpus);
        }
        Ok(counted.mean())
    }

    fn choose(&self, rule: &BenefitParams, reach: Reach, asking: &Asking<'_>) -> Option<Choice> {
        let mut partners = Partners::of(asking, self.residents);
        let mut ranked = Vec::new();
        if reach == Reach::OneServer || self.gather == Gather::ServerFirst {
            let first = partners.by_ref().take(rule.max_probe);
            let choice = self.on_one_server(first, &mut ranked);
            if choice.is_some() || reach == Reach::OneServer {
                return choice;
            }
        }
        self.on_many(ranked.into_iter().chain(partners))
    }

    /// Returns all free GPUs, followed by GPUs of the best residents. For each resident, GPUs on servers that the gang
    /// already uses come first.
    fn on_many(&self, partners: impl Iterator<Item = Partner>) -> Option<Choice> {
        let mut gang = self.with_free();
        let mut counted = Counted::default();
        for partner in partners {
            let theirs = self.residents.alone_of(partner.job);
            let (near, far): (SmallVec<[_; 4]>, SmallVec<[_; 4]>) =
                theirs.partition(|&(server, _)| gang.gpus.mask_on(server) != 0);
            let before = gang.missing;
            for (server, mask) in near.into_iter().chain(far) {
                gang.take(server, mask);
            }
            counted.add(partner.t_con, before - gang.missing);
            if gang.missing == 0 {
                return Some(counted.choice(gang));
            }
        }
        None
    }

    /// Adds partners to `ranked` one by one until some server has enough GPUs, and returns GPUs on this server.
    fn on_one_server(
        &self,
        partners: impl Iterator<Item = Partner>,
        ranked: &mut Vec<Partner>,
    ) -> Option<Choice> {
        let need = self.need();
        let mut tally: BTreeMap<ServerId, u32> = BTreeMap::new();
        for partner in partners {
            ranked.push(partner);
            let mut best: Option<(u32, ServerId)> = None;
            for (server, mask) in self.residents.alone_of(partner.job) {
                let free = gpus_in(self.free.free_mask(server));
                let count = tally.entry(server).or_insert(free);
                *count += gpus_in(mask);
                let is_enough = free < need && *count >= need;
                if is_enough && best.is_none_or(|best| (free, server) < best) {
                    best = Some((free, server));
                }
            }
            if let Some((_, server)) = best {
                return Some(self.gather_on(server, ranked));
            }
        }
        None
    }

    /// Returns GPUs for the gang on a server with enough GPUs: first the free GPUs, then GPUs of the partners in order.
    fn gather_on(&self, server: ServerId, partners: &[Partner]) -> Choice {
        let mut gang = Gang::new(self.need());
        gang.take(server, self.free.free_mask(server));
        let mut counted = Counted::default();
        for partner in partners {
            let theirs = self.residents.alone_of(partner.job);
            let here = theirs.filter(|one| one.0 == server);
            let taken: u32 = here.map(|(server, mask)| gang.take(server, mask)).sum();
            counted.add(partner.t_con, taken);
        }
        counted.choice(gang)
    }
}

/// The GPUs of a gang that have been chosen so far.
struct Gang {
    gpus: GpuSet,
    missing: u32,
}

impl Gang {
    fn new(need: u32) -> Self {
        Self {
            gpus: GpuSet::new(),
            missing: need,
        }
    }

    /// Takes as many slots as the gang still needs, lowest first. Returns the number of slots taken.
    fn take(&mut self, server: ServerId, mask: u64) -> u32 {
        let taken = mask_of_lowest(mask, self.missing);
        let count = gpus_in(taken);
        self.gpus.insert(server, taken);
        self.missing -= count;
        count
    }
}

/// Mean of times, weighted by the number of shared GPUs.
#[derive(Default)]
struct Counted {
    total: f64,
    shared: u32,
}

impl Counted {
    fn add(&mut self, time_s: f64, gpus: u32) {
        if gpus > 0 {
            self.total += time_s * f64::from(gpus);
            self.shared += gpus;
        }
    }

    fn mean(&self) -> f64 {
        self.total / f64::from(self.shared)
    }

    fn choice(&self, gang: Gang) -> Choice {
        Choice {
            gpus: gang.gpus,
            score: self.mean(),
        }
    }
}
