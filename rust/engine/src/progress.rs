//! Piecewise linear work: rates, segments, overheads, re-timing of the jobs that a change touches
//! (`docs/concepts/jobs-and-rates.md`, `overhead-and-failures.md`, `sharing.md`). Cost: O(touched jobs x their GPUs).

use crate::config::GangXi;
use crate::instant::BEYOND;
use crate::queue::{EventClass, EventQueue};
use crate::record::{EndReason, Recorder};
use crate::state::{NO_JOB, Run, RunDetails, State, slots};
use gangline_model::{
    GpuSet, GpuTypeId, JobId, LocalityModel, MAX_SECONDS, Part, SPAN_MAX, Shape, SimSpan, SimTime,
    Tier, gpus_in, span_of_work,
};
use smallvec::SmallVec;

impl State {
    /// Base rate of the gang on a set: the type's, or gpus x the slowest per-GPU rate over mixed types.
    #[inline]
    fn base_on(&self, job: JobId, gpus: &GpuSet) -> f64 {
        let base = |id: GpuTypeId| self.rates.base(&self.jobs, job, id);
        let type_at = |part: &Part| self.servers[part.server.index()].gpu_type;
        let first = type_at(&gpus.parts()[0]);
        let rest = &gpus.parts()[1..];
        if rest.iter().all(|part| type_at(part) == first) {
            return base(first);
        }
        let gang = f64::from(self.jobs.gpus(job));
        let parts = gpus.parts().iter();
        let slowest = parts
            .map(|part| base(type_at(part)) / gang)
            .fold(f64::INFINITY, f64::min);
        gang * slowest
    }

    #[inline]
    pub(crate) fn locality_on(&self, job: JobId, gpus: &GpuSet) -> f64 {
        match &self.config.locality {
            None => 1.0,
            Some(model) => self.locality_by(model.as_ref(), job, gpus),
        }
    }

    fn locality_by(&self, model: &dyn LocalityModel, job: JobId, gpus: &GpuSet) -> f64 {
        let gpu_type = self.cluster.server(gpus.parts()[0].server).gpu_type;
        let gang = self.jobs.gang(job, gpu_type);
        model.locality(&gang, Shape::of(&self.cluster, gpus))
    }

    /// Slow-down of `job` next to `co_runner`; `None` if the two may not share.
    pub(crate) fn pair_xi(&self, job: JobId, co_runner: JobId, gpu_type: GpuTypeId) -> Option<f64> {
        match &self.config.interference {
            None => Some(1.0),
            Some(table) => table.xi(self.jobs.model(job), self.jobs.model(co_runner), gpu_type),
        }
    }

    /// Slow-down of the whole gang: the largest over its GPUs, or their mean. The second value tells whether
    /// it has a co-runner at all.
    fn xi_on(&self, job: JobId, gpus: &GpuSet) -> (f64, bool) {
        if self.max_share == 1 {
            return (1.0, false);
        }
        let (mut most, mut sum) = (1.0_f64, 0.0);
        let mut is_shared = false;
        for part in gpus.parts() {
            let gpu_type = self.cluster.server(part.server).gpu_type;
            let mut last = (job, 1.0);
            for slot in slots(part.mask) {
                let mut xi = 1.0_f64;
                for other in self.residents_of(part.server, slot) {
                    if other == job {
                        continue;
                    }
                    is_shared = true;
                    if last.0 != other {
                        // a pair that may not share was refused with the plan
                        let pair = self.pair_xi(job, other, gpu_type).unwrap_or(f64::INFINITY);
                        last = (other, pair);
                    }
                    xi = xi.max(last.1);
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

    /// Rate the job would have on these GPUs next to who is there now; 0 if it cannot run there.
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

    /// Rate the job would have on these GPUs alone.
    pub(crate) fn rate_alone(&self, job: JobId, gpus: &GpuSet) -> f64 {
        let locality = self.locality_on(job, gpus);
        self.base_on(job, gpus) * locality
    }

    /// Closes the present segment at `now`: time columns, work, checkpoints.
    pub(crate) fn close_segment(
        &mut self,
        slot: usize,
        recorder: &mut Recorder,
        reason: EndReason,
    ) {
        let now = self.now;
        let run = &mut self.runs[slot];
        let job = run.job;
        let at = job.index();
        let length = now - run.segment_start;
        if length.0 == 0 {
            return;
        }
        let (start, overhead_end) = (run.segment_start, now.min(run.progress_start));
        let progress = run.progress_in_segment(now).seconds();
        run.held_ns += length.0;
        self.job[at].run_ns = run.held_ns;
        if overhead_end > start {
            self.out.overhead_ns[at] += (overhead_end - start).0;
        }
        #[expect(clippy::float_cmp, reason = "exactly 1 means that nothing is lost")]
        if run.locality != 1.0 && run.rate > 0.0 {
            let lost_s = progress * (1.0 - run.locality);
            self.out.comm_s[at] += lost_s;
            self.out.comm_tier_s[run.tier as usize][at] += lost_s;
        }
        if let Some(kept) = self.out.kept_ns.get_mut(at) {
            *kept += run.kept() * i128::from(run.progress_in_segment(now).0);
        }
        let before = run.left;
        run.left = (before - run.rate * progress).max(0.0);
        if let Some(limit) = self.limits.get_mut(slot) {
            *limit = (*limit - run.rate * progress).max(0.0);
        }
        if let Some(interval) = self.config.checkpoint_interval {
            let from = run.segment_start.max(run.progress_start);
            let origin = run.progress_start;
            let passed = (now - origin).0.max(0) / interval.0;
            let last = SimTime(origin.0 + passed * interval.0);
            if last > from {
                let kept = before - run.rate * (last - from).seconds();
                self.job[at].remaining = kept.max(0.0);
            }
        }
        recorder.segment(self, job, reason);
    }

    /// Puts a gang on its GPUs: masks, residents, totals. Marks partners as touched.
    #[inline]
    pub(crate) fn occupy(&mut self, job: JobId, gpus: &GpuSet) {
        for part in gpus.parts() {
            let server = &mut self.servers[part.server.index()];
            let newly = gpus_in(server.free & part.mask);
            self.busy_servers += u32::from(server.free == server.full);
            server.free &= !part.mask;
            self.busy_by_type[server.gpu_type.index()] += newly;
            self.gpus_busy += newly;
            let base = server.gpu_base as usize;
            if self.max_share == 1 {
                self.set_residents(base, part.mask, job.0);
            } else {
                for slot in slots(part.mask) {
                    self.join(base + slot as usize, job);
                }
            }
        }
    }

    /// Names the only resident of each of some GPUs of a server.
    #[inline]
    fn set_residents(&mut self, base: usize, mask: u64, resident: u32) {
        let mut rest = mask;
        while rest != 0 {
            self.residents[base + rest.trailing_zeros() as usize] = resident;
            rest &= rest - 1;
        }
    }

    fn join(&mut self, gpu: usize, job: JobId) {
        self.note_useful(gpu);
        let share = self.max_share as usize;
        let count = self.resident_count[gpu] as usize;
        for k in 0..count {
            self.touch(JobId(self.residents[gpu * share + k]));
        }
        self.residents[gpu * share + count] = job.0;
        self.resident_count[gpu] += 1;
    }

    /// Takes a gang off its GPUs. Marks partners as touched.
    #[inline]
    pub(crate) fn vacate(&mut self, job: JobId, gpus: &GpuSet) {
        for part in gpus.parts() {
            let at = part.server.index();
            if self.max_share == 1 {
                let base = self.empty(at, part.mask);
                self.set_residents(base, part.mask, NO_JOB);
                continue;
            }
            let base = self.servers[at].gpu_base as usize;
            let emptied = slots(part.mask)
                .filter(|slot| self.leave(base + *slot as usize, job))
                .fold(0, |emptied, slot| emptied | 1 << slot);
            if emptied != 0 {
                self.empty(at, emptied);
            }
        }
    }

    /// Counts slots of a server as free; the number of its first GPU.
    #[inline]
    fn empty(&mut self, at: usize, emptied: u64) -> usize {
        let server = &mut self.servers[at];
        server.free |= emptied;
        self.busy_servers -= u32::from(server.free == server.full);
        let gpus = gpus_in(emptied);
        self.busy_by_type[server.gpu_type.index()] -= gpus;
        self.gpus_busy -= gpus;
        server.gpu_base as usize
    }

    /// Adds the useful time of a shared GPU since its residents last changed: it is useful while one
    /// resident makes progress, at the locality of the one that distance slows least.
    fn note_useful(&mut self, gpu: usize) {
        let (from, to) = (self.useful_since[gpu], self.now);
        self.useful_since[gpu] = to;
        if from == to {
            return;
        }
        let share = self.max_share as usize;
        let count = self.resident_count[gpu] as usize;
        let mut starts: Vec<(SimTime, f64)> = self.residents[gpu * share..gpu * share + count]
            .iter()
            .map(|&job| {
                let run = &self.runs[self.slot_of(JobId(job))];
                (run.progress_start.max(from).min(to), run.locality)
            })
            .collect();
        starts.sort_by_key(|start| start.0);
        let mut best = 0.0_f64;
        for (at, &(start, locality)) in starts.iter().enumerate() {
            best = best.max(locality);
            let end = starts.get(at + 1).map_or(to, |next| next.0);
            self.useful_gpu_s += (end - start).seconds() * best;
        }
    }

    /// As [`Self::note_useful`], for every GPU of a record.
    fn note_useful_gang(&mut self, slot: usize) {
        let gpus = self.runs[slot].gpus.clone();
        for part in gpus.parts() {
            for at in slots(part.mask) {
                self.note_useful(self.gpu(part.server, at));
            }
        }
    }

    /// Removes a resident; whether the GPU is empty now.
    fn leave(&mut self, gpu: usize, job: JobId) -> bool {
        self.note_useful(gpu);
        let share = self.max_share as usize;
        let count = self.resident_count[gpu] as usize;
        let list = &mut self.residents[gpu * share..gpu * share + count];
        let at = list
            .iter()
            .position(|&resident| resident == job.0)
            .expect("it lives here");
        list[at..].rotate_left(1);
        list[count - 1] = NO_JOB;
        self.resident_count[gpu] -= 1;
        for k in 0..count - 1 {
            self.touch(JobId(self.residents[gpu * share + k]));
        }
        count == 1
    }

    fn touch(&mut self, job: JobId) {
        let Some(slot) = self.job[job.index()].slot() else {
            return;
        };
        if self.runs[slot as usize].touched {
            return;
        }
        self.runs[slot as usize].touched = true;
        self.touched.push(job);
        self.is_unsettled = true;
    }

    /// Makes a waiting job run: its record, rate and completion.
    pub(crate) fn begin(
        &mut self,
        job: JobId,
        gpus: GpuSet,
        (sub_batch, overhead): (u32, SimSpan),
        queue: &mut EventQueue,
    ) {
        self.occupy(job, &gpus);
        let gpu_type = self.servers[gpus.parts()[0].server.index()].gpu_type;
        let (tier, base) = if gpus.parts().len() == 1 {
            (Tier::Server, self.rates.base(&self.jobs, job, gpu_type))
        } else {
            (self.cluster.tier(&gpus), self.base_on(job, &gpus))
        };
        let locality = self.locality_on(job, &gpus);
        let slot = self.free_slots.pop().unwrap_or_else(|| {
            self.runs.push(Run::default());
            (self.runs.len() - 1) as u32
        });
        let (remaining, run_ns) = self.set_running(job, slot);
        let progress_start = self.now + overhead;
        let run = &mut self.runs[slot as usize];
        run.job = job;
        run.gpus = gpus;
        run.segment_start = self.now;
        run.progress_start = progress_start;
        run.finish = SimTime::NEVER;
        run.started = self.now;
        run.tier = tier;
        run.gpu_type = gpu_type;
        run.sub_batch = sub_batch;
        run.rate = 0.0;
        run.left = remaining;
        run.held_ns = run_ns;
        run.locality = locality;
        run.touched = false;
        if self.max_share > 1 || self.config.segments {
            self.open_details(slot, sub_batch);
        }
        let is_sending = self.uplinks.is_some() && tier == Tier::Network && self.send(slot);
        if self.max_share == 1 && !is_sending {
            let inflation = self.inflation(job, sub_batch);
            self.schedule(slot, (base * locality) / inflation, queue);
        } else {
            self.touch(job);
        }
    }

    /// Puts a gang over racks on their up-links; whether it sends anything through them.
    #[cold]
    #[inline(never)]
    fn send(&mut self, slot: u32) -> bool {
        let run = &self.runs[slot as usize];
        let (Some(uplinks), Some(model)) = (&mut self.uplinks, &self.config.locality) else {
            return false;
        };
        let gang = self.jobs.gang(run.job, run.gpu_type);
        let Some(load) = model.load(&gang, Shape::of(&self.cluster, &run.gpus)) else {
            return false;
        };
        let parts = run.gpus.parts().iter();
        let racks = parts.map(|part| self.cluster.server(part.server).rack.0);
        let mut racks: SmallVec<[u32; 4]> = racks.collect();
        racks.sort_unstable();
        racks.dedup();
        uplinks.join(slot, run.job, racks, load, run.locality);
        true
    }

    /// Shares the up-links anew after jobs came or went; the jobs whose locality is another now, in job
    /// order, are to be re-timed.
    #[cold]
    #[inline(never)]
    pub(crate) fn share_uplinks(&mut self, moved: &mut Vec<JobId>) {
        let Some(uplinks) = &mut self.uplinks else {
            return;
        };
        let first = moved.len();
        uplinks.settle(moved);
        for &job in &moved[first..] {
            self.touch(job);
        }
    }

    /// Locality of a record as the up-links leave it now.
    #[inline]
    fn locality_now(&self, slot: usize) -> f64 {
        let run = &self.runs[slot];
        match &self.uplinks {
            Some(uplinks) if run.tier == Tier::Network => {
                uplinks.locality(slot as u32).unwrap_or(run.locality)
            }
            _ => run.locality,
        }
    }

    fn open_details(&mut self, slot: u32, sub_batch: u32) {
        let fresh = RunDetails {
            shared_since: SimTime::NEVER,
            segment_sub_batch: sub_batch,
            co_runners: None,
        };
        match self.details.get_mut(slot as usize) {
            Some(details) => *details = fresh,
            None => self.details.push(fresh),
        }
    }

    /// Sets the rate of a record from now on and pushes the completion.
    #[inline]
    fn schedule(&mut self, slot: u32, rate: f64, queue: &mut EventQueue) {
        let limit = if self.limits.is_empty() {
            f64::INFINITY
        } else {
            self.limit_of(slot as usize)
        };
        let run = &mut self.runs[slot as usize];
        run.rate = rate;
        let work = if limit < run.left { limit } else { run.left };
        let span = span_of_work(work, rate);
        run.finish = self.now.max(run.progress_start) + span;
        if span == SPAN_MAX && work > rate * MAX_SECONDS {
            run.finish = BEYOND;
        }
        queue.push(run.finish, EventClass::Completion, slot, run.generation);
    }

    /// Ends a job's hold on its GPUs: closes the segment, frees the GPUs, forgets the record. The
    /// completion event, if still in the queue, dies by generation. The caller says what becomes of it.
    pub(crate) fn end_run(
        &mut self,
        slot: usize,
        recorder: &mut Recorder,
        reason: EndReason,
    ) -> GpuSet {
        self.close_segment(slot, recorder, reason);
        if self.max_share > 1 {
            self.note_sharing(slot, false);
        }
        let run = &mut self.runs[slot];
        let (job, left) = (run.job, run.left);
        let gpus = std::mem::take(&mut run.gpus);
        run.generation = run.generation.wrapping_add(1);
        let falls_back = matches!(reason, EndReason::Failed)
            || (self.config.checkpoint_interval.is_some()
                && matches!(reason, EndReason::Preempted | EndReason::Moved));
        if !falls_back {
            self.job[job.index()].remaining = left;
        }
        if let Some(limit) = self.limits.get_mut(slot) {
            *limit = f64::INFINITY;
        }
        if let Some(uplinks) = &mut self.uplinks {
            self.is_unsettled |= uplinks.leave(slot as u32);
        }
        self.vacate(job, &gpus);
        self.free_slots.push(slot as u32);
        self.running.remove(job.index());
        gpus
    }

    /// Changes the sub-batch of a running job; its rate follows with the touched jobs.
    pub(crate) fn set_sub_batch(
        &mut self,
        job: JobId,
        sub_batch: u32,
        queue: &mut EventQueue,
        recorder: &mut Recorder,
    ) {
        self.run_mut(job).sub_batch = sub_batch;
        if self.max_share == 1 {
            self.retime(job, queue, recorder);
        } else {
            self.touch(job);
        }
    }

    /// Re-times all touched jobs, in job-index order; once per instant.
    pub(crate) fn retime_touched(&mut self, queue: &mut EventQueue, recorder: &mut Recorder) {
        let mut touched = std::mem::take(&mut self.touched);
        touched.sort_unstable();
        for &job in &touched {
            if self.run(job).is_some() {
                self.run_mut(job).touched = false;
                self.retime(job, queue, recorder);
            }
        }
        touched.clear();
        self.touched = touched;
    }

    fn retime(&mut self, job: JobId, queue: &mut EventQueue, recorder: &mut Recorder) {
        let slot = self.slot_of(job);
        let (xi, is_shared) = self.xi_on(job, &self.runs[slot].gpus);
        self.note_sharing(slot, is_shared);
        let run = &self.runs[slot];
        let inflation = self.inflation(job, run.sub_batch);
        let (before, locality) = (run.locality, self.locality_now(slot));
        let rate = (self.base_on(job, &run.gpus) * locality) / (inflation * xi);
        let is_moved = locality.to_bits() != before.to_bits();
        let is_same = rate.to_bits() == run.rate.to_bits() && !is_moved;
        if is_same || self.is_paused(slot) {
            return;
        }
        if is_moved && self.max_share > 1 {
            self.note_useful_gang(slot);
        }
        self.close_segment(slot, recorder, EndReason::Retimed);
        self.runs[slot].locality = locality;
        self.open_segment(slot, rate, queue);
    }

    /// Lets a job with a new limit go on from now, at the rate that its GPUs, partners and links give it.
    pub(crate) fn resume(&mut self, slot: usize, queue: &mut EventQueue) {
        let run = &self.runs[slot];
        let (xi, _) = self.xi_on(run.job, &run.gpus);
        let (locality, inflation) = (
            self.locality_now(slot),
            self.inflation(run.job, run.sub_batch),
        );
        let rate = (self.base_on(run.job, &run.gpus) * locality) / (inflation * xi);
        self.runs[slot].locality = locality;
        self.open_segment(slot, rate, queue);
    }

    /// Opens a segment at a rate; the one before is closed.
    #[inline]
    fn open_segment(&mut self, slot: usize, rate: f64, queue: &mut EventQueue) {
        let (job, now) = (self.runs[slot].job, self.now);
        if self.config.segments {
            let others = self.co_runners(job, &self.runs[slot].gpus);
            let details = &mut self.details[slot];
            details.co_runners = Some(others.into_boxed_slice());
            details.segment_sub_batch = self.runs[slot].sub_batch;
        }
        let run = &mut self.runs[slot];
        run.segment_start = now;
        if run.rate > 0.0 {
            // its end is in the queue, if only beyond all time
            run.generation = run.generation.wrapping_add(1);
            queue.note_stale();
        }
        self.schedule(slot as u32, rate, queue);
    }

    /// Keeps the time that a job spends next to a co-runner.
    pub(crate) fn note_sharing(&mut self, slot: usize, is_shared: bool) {
        let now = self.now;
        let job = self.runs[slot].job;
        let Some(details) = self.details.get_mut(slot) else {
            return;
        };
        match (details.shared_since, is_shared) {
            (SimTime::NEVER, true) => details.shared_since = now,
            (since, false) if since != SimTime::NEVER => {
                details.shared_since = SimTime::NEVER;
                self.out.share_ns[job.index()] += (now - since).0;
            }
            _ => {}
        }
    }

    /// Time since the last start or move of a running job, overhead included.
    pub(crate) fn since_start(&self, job: JobId) -> Option<SimSpan> {
        self.run(job).map(|run| self.now - run.started)
    }
}
