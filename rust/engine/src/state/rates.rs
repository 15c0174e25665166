//! The rate of a part (`docs/concepts/jobs-and-rates.md`, `sharing.md`, `parts.md`): its base rate, its locality
//! factor, and the slowdown factor that its co-runners cause. This module only reads; `motion.rs` applies the rates.

use crate::config::GangXi;
use crate::occupancy::NO_JOB;
use crate::state::State;
use crate::state::running::{NewPart, Pace, Part, Run, Speed, Untold};
use crate::structures::bits::slots;
use gangline_model::{
    Gang, GpuSet, GpuTypeId, JobId, LocalityModel, ServerGpus, ServerId, Shape, Tier,
};
use smallvec::SmallVec;

impl State {
    /// Returns the GPU type of each server in a set of GPUs.
    pub(super) fn types_on<'a>(&'a self, gpus: &'a GpuSet) -> impl Iterator<Item = GpuTypeId> + 'a {
        let type_of = |one: &ServerGpus| self.occupancy.type_of(one.server);
        gpus.by_server().iter().map(type_of)
    }

    /// Returns whether a set of GPUs spans several types.
    #[inline]
    fn is_mixed(&self, gpus: &GpuSet) -> bool {
        if !self.types.mixes() {
            return false;
        }
        let mut types = self.types_on(gpus);
        let first = types.next();
        types.any(|other| Some(other) != first)
    }

    /// Returns the base rate of the gang on a set of GPUs. If the set mixes types, this rate is the number of GPUs
    /// times the slowest rate per GPU.
    #[inline]
    pub(crate) fn base_on(&self, job: JobId, gpus: &GpuSet) -> f64 {
        let base = |id: GpuTypeId| self.rates.base(&self.jobs, job, id);
        if self.types.copy_gpus().is_some() {
            let id = self.occupancy.type_of(gpus.by_server()[0].server);
            return self.rates.of_copy(&self.jobs, job, id, gpus.gpus());
        }
        if !self.is_mixed(gpus) {
            return base(self.occupancy.type_of(gpus.by_server()[0].server));
        }
        let gang = f64::from(self.jobs.gpus(job));
        let each = self.types_on(gpus).map(|id| base(id) / gang);
        gang * each.fold(f64::INFINITY, f64::min)
    }

    /// Returns the locality factor of the gang on a set of GPUs; if the set mixes types, this is the factor of the type
    /// with the smallest factor.
    #[inline]
    pub(crate) fn locality_on(&self, job: JobId, gpus: &GpuSet) -> f64 {
        match &self.config.locality {
            None => 1.0,
            // The model of an elastic job already includes the cost of distance.
            Some(_) if self.elastic_model(job).is_some() => 1.0,
            Some(model) => self.locality_by(model.as_ref(), job, gpus),
        }
    }

    #[inline(never)]
    fn locality_by(&self, model: &dyn LocalityModel, job: JobId, gpus: &GpuSet) -> f64 {
        let shape = Shape::of(&self.cluster, gpus);
        let on = |id| {
            let gpus = gpus.gpus();
            let gang = self.jobs.gang(job, id);
            model.locality(&Gang { gpus, ..gang }, shape)
        };
        if self.is_mixed(gpus) {
            return self.types_on(gpus).map(on).fold(f64::INFINITY, f64::min);
        }
        on(self.occupancy.type_of(gpus.by_server()[0].server))
    }

    /// Returns the type with the smallest locality factor in a set of GPUs; on a tie, the first such type. This type
    /// determines the rate of the gang.
    pub(crate) fn slowest_type(&self, job: JobId, gpus: &GpuSet) -> GpuTypeId {
        let first = self.occupancy.type_of(gpus.by_server()[0].server);
        let (Some(model), true) = (&self.config.locality, self.is_mixed(gpus)) else {
            return first;
        };
        let shape = Shape::of(&self.cluster, gpus);
        let on = |id: &GpuTypeId| model.locality(&self.jobs.gang(job, *id), shape);
        let slowest = self
            .types_on(gpus)
            .min_by(|a, b| on(a).total_cmp(&on(b)).then(a.cmp(b)));
        slowest.unwrap_or(first)
    }

    /// Returns the slowdown factor of `job` next to `co_runner`; `None` if the two may not share GPUs.
    pub(crate) fn pair_xi(&self, job: JobId, co_runner: JobId, gpu_type: GpuTypeId) -> Option<f64> {
        match &self.config.interference {
            None => Some(1.0),
            Some(table) => table.xi(job, co_runner, gpu_type),
        }
    }

    /// Returns the slowdown factor of a gang on the GPUs that it holds, and whether it has a co-runner.
    #[inline]
    pub(crate) fn xi_now(&self, job: JobId, gpus: &GpuSet) -> (f64, bool) {
        let is_shared_there =
            |one: &ServerGpus| one.mask & self.occupancy.co_located_mask(one.server) != 0;
        if gpus.by_server().iter().any(is_shared_there) {
            self.xi_on(job, gpus)
        } else {
            (1.0, false)
        }
    }

    /// Returns the slowdown factor of the whole gang: the largest factor among its GPUs, or their mean. The second
    /// value indicates whether the gang has a co-runner.
    fn xi_on(&self, job: JobId, gpus: &GpuSet) -> (f64, bool) {
        if !self.features.shares {
            return (1.0, false);
        }
        let (mut most, mut sum) = (1.0_f64, 0.0);
        let mut is_shared = false;
        for one in gpus.by_server() {
            let gpu_type = self.occupancy.type_of(one.server);
            // Usually all GPUs of a gang have the same residents.
            let (mut last, mut xi) = ([NO_JOB; 2], 1.0_f64);
            let base = self.occupancy.gpu(one.server, 0);
            for slot in slots(one.mask) {
                let pair = self.occupancy.pair(base + slot as usize);
                if pair != last {
                    last = pair;
                    xi = 1.0;
                    for &other in &pair {
                        if other == job || other == NO_JOB {
                            continue;
                        }
                        is_shared = true;
                        if self.is_harmless(other, one.server) {
                            continue;
                        }
                        // A plan that pairs jobs that may not share has already been refused.
                        let pair_xi = self.pair_xi(job, other, gpu_type);
                        xi = xi.max(pair_xi.unwrap_or(f64::INFINITY));
                    }
                }
                most = most.max(xi);
                sum += xi;
            }
        }
        match self.config.gang_xi {
            GangXi::Max => (most, is_shared),
            GangXi::Mean => (sum / f64::from(gpus.gpus()), is_shared),
        }
    }

    /// Returns whether a job has not yet begun to slow down its co-runners on a server.
    #[inline]
    fn is_harmless(&self, job: JobId, server: ServerId) -> bool {
        let begins = |run: &Run| run.resident_on(server).progress_start > self.now;
        self.features.starts_quietly && self.run(job).is_some_and(begins)
    }

    /// Returns the co-runners of a gang in the order of their ids. Each entry contains the number of shared GPUs and
    /// the slowdown factor that the co-runner causes.
    pub(crate) fn partners(&self, job: JobId, gpus: &GpuSet) -> SmallVec<[(JobId, u32, f64); 2]> {
        let mut found: SmallVec<[(JobId, u32, f64); 2]> = SmallVec::new();
        for one in gpus.by_server() {
            let gpu_type = self.occupancy.type_of(one.server);
            for slot in slots(one.mask) {
                let residents = self.occupancy.residents(one.server, slot);
                for &other in residents.iter().filter(|&&other| other != job) {
                    let xi = self.pair_xi(job, other, gpu_type).unwrap_or(f64::INFINITY);
                    match found.iter_mut().find(|entry| entry.0 == other) {
                        Some(entry) => *entry = (other, entry.1 + 1, entry.2.max(xi)),
                        None => found.push((other, 1, xi)),
                    }
                }
            }
        }
        found.sort_by_key(|entry| entry.0);
        found
    }

    /// Returns the rate that the job would have on these GPUs, next to their current residents; 0 if it cannot run
    /// there.
    pub(crate) fn rate_if(&self, job: JobId, gpus: &GpuSet) -> f64 {
        if gpus.is_empty() {
            return 0.0;
        }
        let (xi, _) = self.xi_on(job, gpus);
        if xi.is_infinite() {
            0.0
        } else {
            self.rate_alone(job, gpus) / xi
        }
    }

    /// Returns the rate that the job would have if it were alone on these GPUs.
    pub(crate) fn rate_alone(&self, job: JobId, gpus: &GpuSet) -> f64 {
        if self.features.resizes
            && let Some(rate) = self.elastic_base_at(job, gpus, None, self.remaining_work(job))
        {
            return rate;
        }
        let locality = self.locality_on(job, gpus);
        self.base_on(job, gpus) * locality
    }

    /// Returns the rate that a running job would have in its current phase if it were alone on its GPUs.
    pub(crate) fn rate_alone_now(&self, job: JobId, gpus: &GpuSet) -> f64 {
        match self.phase_factor(job) {
            None => self.rate_alone(job, gpus),
            Some(factor) => (self.base_on(job, gpus) * factor) * self.locality_on(job, gpus),
        }
    }

    /// Returns the current locality factor of a part, including the effect of uplinks.
    #[inline]
    pub(crate) fn locality_now(&self, record: usize, part: &Part) -> f64 {
        match &self.uplinks {
            Some(uplinks) if part.tier == Tier::Network => {
                uplinks.locality(record as u32).unwrap_or(part.locality)
            }
            _ => part.locality,
        }
    }

    /// Returns the memory that a part holds on each of its GPUs; 0 in a run without shared GPUs, where memory is not
    /// tracked.
    #[inline]
    pub(crate) fn bytes_of(&self, job: JobId, sub_batch: u32) -> u64 {
        if self.features.shares {
            self.memory_bytes(job, sub_batch)
        } else {
            0
        }
    }

    /// Returns the rate of a part that starts now, without the effect of co-runners, and the factors of this rate.
    #[inline]
    pub(super) fn pace_of(&mut self, job: JobId, new: &NewPart<'_>) -> Pace {
        let untold = if self.features.has_run_time {
            self.begin_stretch(job, new)
        } else {
            Untold::default()
        };
        let gpus = &*new.gpus;
        let gpu_type = self.occupancy.type_of(gpus.by_server()[0].server);
        let is_plain = gpus.by_server().len() == 1 && self.types.copy_gpus().is_none();
        let (tier, base) = if is_plain {
            (Tier::Server, self.rates.base(&self.jobs, job, gpu_type))
        } else {
            (self.cluster.tier(gpus), self.base_on(job, gpus))
        };
        let base = if self.features.has_knots {
            self.elastic_base(job, new)
                .unwrap_or_else(|| self.base_in_phase(job, base))
        } else {
            base
        };
        let locality = self.locality_on(job, gpus);
        let inflation = self.inflation_of(job, gpus, (new.sub_batch, new.accum));
        let mut rate = (base * locality) / inflation;
        if self.features.has_run_time {
            rate = untold.rate(rate);
        }
        Pace {
            gpu_type,
            tier,
            base,
            locality,
            inflation,
            rate: if self.features.shares {
                0.0 // The rate is 0 until the part is re-timed at the end of the instant.
            } else {
                rate
            },
            untold,
            has_details: self.features.has_details,
        }
    }

    /// Returns the factor by which a sub-batch stretches the iteration time of a part on these GPUs.
    #[inline]
    fn inflation_of(&self, job: JobId, gpus: &GpuSet, batch: (u32, Option<u32>)) -> f64 {
        let (sub_batch, accum) = batch;
        if accum.is_some() {
            return 1.0; // The base rate already includes the batch.
        }
        let places = gpus.by_server();
        let gpu_type = self.occupancy.type_of(places[0].server);
        self.inflation(job, sub_batch, gpu_type, Some(places.len()))
    }

    /// Returns the rate of a part on its GPUs with their current residents.
    #[inline]
    pub(super) fn speed_now(&self, record: usize, at: usize) -> Speed {
        let run = &self.runs[record];
        let (xi, is_shared) = self.xi_now(run.job, &run.parts[at].gpus);
        Speed {
            is_shared,
            ..self.speed_with(record, at, xi)
        }
    }

    /// Returns the rate of a part on its GPUs with a given slowdown factor.
    #[inline]
    pub(super) fn speed_with(&self, record: usize, at: usize, xi: f64) -> Speed {
        let run = &self.runs[record];
        let part = &run.parts[at];
        let locality = self.locality_now(record, part);
        let batch = (part.sub_batch, part.accum);
        let inflation = self.inflation_of(run.job, &part.gpus, batch);
        Speed {
            locality,
            xi,
            inflation,
            rate: self.rate_of(part, part.base, locality, inflation * xi),
            is_shared: self.features.shares,
        }
    }

    /// Returns the rate of a part, given its base rate, locality factor and slowdown factor.
    #[inline]
    pub(super) fn rate_of(&self, part: &Part, base: f64, locality: f64, slow: f64) -> f64 {
        let rate = (base * locality) / slow;
        match &part.details {
            Some(details) if self.features.has_run_time => details.untold.rate(rate),
            _ => rate,
        }
    }
}
