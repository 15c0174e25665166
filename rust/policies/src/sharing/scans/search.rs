//! Shared GPUs for one gang on one type: first fit (SJF-FFS) and best benefit (SJF-BSBF).

use super::floor::{Floor, Gpu, Site, free_of, set_of};
use crate::baselines::Seen;
use crate::sharing::pair::Pair;
use crate::sharing::params::{BenefitParams, Gather, PartnerTime, SubBatchRule};
use crate::sharing::search::{Reach, ladder};
use gangline_engine::{ClusterView, PolicyError};
use gangline_model::{GpuTypeId, JobId, ServerId};
use std::collections::{BTreeMap, BTreeSet};

/// A newcomer on one of its types.
#[derive(Clone, Copy, Debug)]
pub(super) struct Newcomer<'a> {
    pub(super) view: &'a ClusterView<'a>,
    pub(super) floor: &'a Floor,
    pub(super) gather: Gather,
    pub(super) job: JobId,
    pub(super) gpu_type: GpuTypeId,
    pub(super) seen: Seen,
}

/// GPUs for it, and its sub-batch (0 = full batch).
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) gpus: Vec<Gpu>,
    pub(super) sub_batch: u32,
}

/// A resident beside which the newcomer would gain.
struct Good {
    t_con: f64,
    gpus: Vec<Gpu>,
}

/// GPUs and the mean of the completion times over those that are shared.
struct Choice {
    gpus: Vec<Gpu>,
    score: f64,
}

impl Newcomer<'_> {
    fn need(&self) -> usize {
        self.view.jobs().gpus(self.job) as usize
    }

    fn capacity(&self) -> u64 {
        self.view.cluster().gpu_types()[self.gpu_type.index()].memory_bytes
    }

    /// Both slowdown factors beside a resident; `None` if the two may not share.
    fn factors(&self, resident: JobId) -> Option<(f64, f64)> {
        let own = self.view.xi(self.job, resident, self.gpu_type)?;
        Some((own, self.view.xi(resident, self.job, self.gpu_type)?))
    }

    /// All free GPUs, then the first with one resident.
    pub(super) fn first_fit(&self) -> Option<Found> {
        let (need, capacity) = (self.need(), self.capacity());
        let bytes = self.view.memory_bytes(self.job, 0);
        let eligible = |site: &Site| -> Vec<Gpu> {
            let fits =
                |job| self.floor.has_room(job, bytes, capacity) && self.factors(job).is_some();
            let slots = site.one().filter(|&(_, job)| fits(job));
            slots.map(|(slot, _)| (site.server, slot)).collect()
        };
        let sites = self.floor.of_type(self.gpu_type);
        let mut offers: Vec<(&Site, Vec<Gpu>)> = sites.map(|site| (site, eligible(site))).collect();
        if self.gather == Gather::ServerFirst {
            let enough = offers.iter().filter(|(site, shared)| {
                !shared.is_empty() && site.free_count() + shared.len() >= need
            });
            let best = enough.min_by_key(|(site, _)| (site.free_count(), site.residents()));
            if let Some((site, shared)) = best {
                let gpus = free_of(site).chain(shared.iter().copied());
                return Some(Found {
                    gpus: gpus.take(need).collect(),
                    sub_batch: 0,
                });
            }
        }
        offers.sort_by_key(|(site, _)| site.residents());
        let mut gpus = self.floor.free_gpus(self.gpu_type);
        gpus.extend(offers.into_iter().flat_map(|(_, shared)| shared));
        gpus.truncate(need);
        (gpus.len() == need).then_some(Found { gpus, sub_batch: 0 })
    }

    /// The sub-batch and the GPUs with the least mean completion time.
    ///
    /// # Errors
    /// [`PolicyError::NotAllowedToKnow`], which a policy with [`gangline_engine::Knowledge::Remaining`] never sees.
    pub(super) fn best_benefit(
        &self,
        rule: &BenefitParams,
        reach: Reach,
    ) -> Result<Option<Found>, PolicyError> {
        let open = self.floor.open(self.gpu_type);
        let batch = self.view.jobs().batch_size(self.job);
        let mut best: Option<(f64, Found)> = None;
        for sub_batch in ladder(batch, rule.min_sub_batch) {
            let bytes = self.view.memory_bytes(self.job, sub_batch);
            let good = self.good(rule, &open, sub_batch, bytes)?;
            if let Some(choice) = self.choose(rule, reach, &good) {
                let found = Found {
                    gpus: choice.gpus,
                    sub_batch,
                };
                if rule.sub_batch_rule == SubBatchRule::Largest {
                    return Ok(Some(found));
                }
                if best.as_ref().is_none_or(|&(score, _)| choice.score < score) {
                    best = Some((choice.score, found));
                }
            }
            let has_room = |&job: &JobId| self.floor.has_room(job, bytes, self.capacity());
            if open.keys().all(has_room) {
                break;
            }
        }
        Ok(best.map(|(_, found)| found))
    }

    /// Residents beside which it would gain, in the order of mean completion time, then job.
    fn good(
        &self,
        rule: &BenefitParams,
        open: &BTreeMap<JobId, Vec<Gpu>>,
        sub_batch: u32,
        bytes: u64,
    ) -> Result<Vec<Good>, PolicyError> {
        let view = self.view;
        let work = view.remaining_work(self.job)?;
        let alone_s = work / view.base_rate(self.job, self.gpu_type);
        let new_s = self.seen.seconds(view, self.job, alone_s);
        let inflation = view.inflation(self.job, sub_batch, self.gpu_type);
        let mut good = Vec::new();
        for (&job, gpus) in open {
            if !self.floor.has_room(job, bytes, self.capacity()) {
                continue;
            }
            let Some((xi_new, xi_resident)) = self.factors(job) else {
                continue;
            };
            let pair = self.pair(rule, job, (xi_new, xi_resident), (new_s, inflation));
            if pair.shares() {
                good.push(Good {
                    t_con: pair.t_con(),
                    gpus: gpus.clone(),
                });
            }
        }
        // stable: jobs ascend
        good.sort_by(|a, b| a.t_con.total_cmp(&b.t_con));
        Ok(good)
    }

    fn pair(
        &self,
        rule: &BenefitParams,
        job: JobId,
        (xi_new, xi_resident): (f64, f64),
        (new_s, inflation): (f64, f64),
    ) -> Pair {
        let resident = &self.floor.residents[&job];
        let mut left_s = (resident.finish - self.view.now()).seconds();
        if rule.partner_time == PartnerTime::Exclusive {
            left_s /= resident.xi;
        }
        let further = match rule.partner_time {
            PartnerTime::Shared => (xi_resident / resident.xi).max(1.0),
            _ => xi_resident,
        };
        Pair {
            new_s,
            resident_s: self.seen.seconds(self.view, job, left_s),
            xi_new,
            xi_resident: further,
            inflation,
        }
    }

    /// Its own time there and the delay of a partner, over the shared GPUs.
    pub(super) fn added_s(&self, rule: &BenefitParams, found: &Found) -> Result<f64, PolicyError> {
        let (view, gpu_type) = (self.view, self.gpu_type);
        let work = view.remaining_work(self.job)?;
        let seen = |rate: f64| self.seen.seconds(view, self.job, work / rate);
        let new_s = seen(view.rate_alone(self.job, &set_of(&found.gpus)));
        let base_s = seen(view.base_rate(self.job, gpu_type));
        let inflation = view.inflation(self.job, found.sub_batch, gpu_type);
        let mut ranked = Vec::new();
        for (job, gpus) in self.floor.open(gpu_type) {
            let shared = gpus.iter().filter(|gpu| found.gpus.contains(gpu)).count();
            if shared == 0 {
                continue;
            }
            let factors = self.factors(job).expect("a pair that may share");
            let rank = self.pair(rule, job, factors, (base_s, inflation)).t_con();
            let pair = self.pair(rule, job, factors, (new_s, inflation));
            ranked.push((rank, 2.0 * pair.t_con() - pair.resident_s, shared));
        }
        ranked.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut counted = Counted::default();
        for &(_, added_s, shared) in &ranked {
            counted.add(added_s, shared);
        }
        Ok(if ranked.is_empty() {
            new_s
        } else {
            counted.choice(Vec::new()).score
        })
    }

    fn choose(&self, rule: &BenefitParams, reach: Reach, good: &[Good]) -> Option<Choice> {
        let is_one = reach == Reach::OneServer;
        if is_one || self.gather == Gather::ServerFirst {
            let found = self.on_one_server(&good[..good.len().min(rule.max_probe)]);
            if is_one || found.is_some() {
                return found;
            }
        }
        self.on_many(good)
    }

    /// All free GPUs, then those of the best residents; of each first those on servers where the gang is already.
    fn on_many(&self, good: &[Good]) -> Option<Choice> {
        let need = self.need();
        let mut gpus = self.floor.free_gpus(self.gpu_type);
        let mut counted = Counted::default();
        for partner in good {
            let here: BTreeSet<ServerId> = gpus.iter().map(|&(server, _)| server).collect();
            let mut theirs = partner.gpus.clone();
            theirs.sort_by_key(|gpu| (!here.contains(&gpu.0), *gpu));
            theirs.truncate(need - gpus.len());
            counted.add(partner.t_con, theirs.len());
            gpus.extend(theirs);
            if gpus.len() == need {
                return Some(counted.choice(gpus));
            }
        }
        None
    }

    /// The first server that has enough as partner after partner is added.
    fn on_one_server(&self, good: &[Good]) -> Option<Choice> {
        let need = self.need();
        let sites: Vec<&Site> = self.floor.of_type(self.gpu_type).collect();
        let mut tally: Vec<usize> = sites.iter().map(|site| site.free_count()).collect();
        for (at, partner) in good.iter().enumerate() {
            for gpu in &partner.gpus {
                let index = sites.binary_search_by_key(&gpu.0, |site| site.server);
                tally[index.expect("a server of the type")] += 1;
            }
            let enough = sites
                .iter()
                .zip(&tally)
                .filter(|&(site, &count)| site.free_count() < need && count >= need);
            let Some((site, _)) = enough.min_by_key(|(site, _)| site.free_count()) else {
                continue;
            };
            let mut gpus: Vec<Gpu> = free_of(site).collect();
            let mut counted = Counted::default();
            for chosen in &good[..=at] {
                let here = chosen.gpus.iter().filter(|gpu| gpu.0 == site.server);
                let before = gpus.len();
                gpus.extend(here.take(need - before));
                counted.add(chosen.t_con, gpus.len() - before);
            }
            return Some(counted.choice(gpus));
        }
        None
    }
}

/// Mean of completion times, weighted by shared GPUs.
#[derive(Default)]
struct Counted {
    total: f64,
    shared: usize,
}

impl Counted {
    fn add(&mut self, t_con: f64, gpus: usize) {
        if gpus > 0 {
            self.total += t_con * gpus as f64;
            self.shared += gpus;
        }
    }

    fn choice(&self, gpus: Vec<Gpu>) -> Choice {
        Choice {
            gpus,
            score: self.total / self.shared as f64,
        }
    }
}
