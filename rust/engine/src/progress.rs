//! Piecewise linear work: rates, segments, overheads, quotas, and the re-timing of the jobs that a change touches
//! (`docs/concepts/jobs-and-rates.md`, `overhead-and-failures.md`, `sharing.md`, `parts.md`).
//!
//! Work is one number per job. It is *settled* when something about the job changes, and from then on is a straight
//! line up to the next event of the job: its end, the end of a part's overhead or of a part's quota.
//! Cost: O(touched jobs x their GPUs).

use crate::instant::BEYOND;
use crate::occupancy::{NO_JOB, slots};
use crate::queue::{EventClass, EventQueue};
use crate::record::{EndReason, Logged, Recorder};
use crate::state::running::{AtRisk, Part, Run};
use crate::state::{JobColumnsOut, State};
use gangline_model::{
    GpuSet, GpuTypeId, JobId, MAX_SECONDS, SPAN_MAX, Shape, SimSpan, SimTime, Terms, Tier,
    span_of_work,
};
use smallvec::SmallVec;

/// A part that is about to start.
#[derive(Debug)]
pub(crate) struct NewPart<'a> {
    pub(crate) number: u16,
    /// The part gets these and leaves those that its record had before.
    pub(crate) gpus: &'a mut GpuSet,
    /// 0 = full batch.
    pub(crate) sub_batch: u32,
    /// With it, a batch of an elastic job.
    pub(crate) accum: Option<u32>,
    pub(crate) overhead: SimSpan,
    /// Infinite = none.
    pub(crate) quota: f64,
}

/// How fast a part goes when it starts.
#[derive(Clone, Copy)]
struct Pace {
    gpu_type: GpuTypeId,
    tier: Tier,
    base: f64,
    locality: f64,
    inflation: f64,
    rate: f64,
    has_details: bool,
}

/// What a part makes of its base rate where it is now.
#[derive(Clone, Copy)]
pub(crate) struct Speed {
    locality: f64,
    xi: f64,
    inflation: f64,
    rate: f64,
    /// Whether it may have a co-runner.
    is_shared: bool,
}

/// What the next event of a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextStep {
    /// Its work is done.
    Done,
    /// An overhead is over, or a quota is used up.
    Change,
}

impl Run {
    /// Whether the next event of the run is its end.
    #[inline]
    fn ends_next(&self) -> bool {
        match &self.parts[..] {
            [part] => self.knot <= 0.0 && part.quota >= self.left && !self.begins_next(),
            _ => self.next_step().1 == NextStep::Done,
        }
    }

    /// When the job will be done at its present rate, or stops at its quota. Its next event may come before: the end
    /// of its overhead, or of a phase of an elastic job.
    #[inline]
    pub fn done_at(&self) -> SimTime {
        match &self.parts[..] {
            [part] if part.rate > 0.0 && (self.knot > 0.0 || self.begins_next()) => {
                let work = part.quota.min(self.left);
                end_of(self.progress_from(self.since), work, part.rate)
            }
            _ => self.finish,
        }
    }

    /// Whether the next event of a run with one part is the end of its overhead.
    #[inline]
    fn begins_next(&self) -> bool {
        self.finish <= self.parts[0].progress_start
    }

    /// The rate of all parts together, and when the next event of the run is.
    #[cold]
    fn pace_of_parts(&self) -> (f64, SimTime) {
        let rate = self.parts.iter().fold(0.0, |sum, part| sum + part.rate);
        let next = if rate > 0.0 {
            self.next_step().0
        } else {
            SimTime::NEVER
        };
        (rate, next)
    }

    /// The next event of the run, from its last settlement: when, and what.
    fn next_step(&self) -> (SimTime, NextStep) {
        let from = self.progress_from(self.since);
        let (mut rate, mut quotas) = (0.0, 0.0);
        let (mut used_up, mut overhead_end) = (SimTime::NEVER, SimTime::NEVER);
        for part in self.parts.iter().filter(|part| !part.is_paused()) {
            if part.progress_start > from {
                overhead_end = overhead_end.min(part.progress_start);
                continue;
            }
            rate += part.rate;
            quotas += part.quota;
            used_up = used_up.min(part.quota_end(from));
        }
        let done = end_of(from, self.left, rate);
        let change = used_up.min(overhead_end);
        let is_short = done == used_up && quotas < self.left && overhead_end >= done;
        if done <= change && !is_short {
            (done, NextStep::Done)
        } else {
            (change, NextStep::Change)
        }
    }
}

impl Part {
    /// Starts it now; `left` is what is left of its job.
    #[inline]
    fn fill(&mut self, new: NewPart<'_>, pace: Pace, now: SimTime, left: f64) {
        let NewPart {
            number,
            gpus,
            sub_batch,
            accum,
            overhead,
            quota,
        } = new;
        std::mem::swap(&mut self.gpus, gpus);
        self.segment_start = now;
        self.progress_start = now + overhead;
        self.rate = pace.rate;
        self.base = pace.base;
        self.locality = pace.locality;
        self.xi = 1.0;
        self.inflation = pace.inflation;
        self.quota = quota;
        self.at_risk = AtRisk::safe(left);
        self.number = number;
        self.gpu_type = pace.gpu_type;
        self.sub_batch = sub_batch;
        self.accum = accum;
        self.tier = pace.tier;
        if pace.has_details {
            let details = self.details.get_or_insert_default();
            details.shared_since = SimTime::NEVER;
            details.is_new = true;
            details.segment_sub_batch = sub_batch;
            details.co_runners.clear();
        }
    }

    /// When its quota is used up if it makes progress from an instant on; `NEVER` without a quota.
    #[inline]
    fn quota_end(&self, from: SimTime) -> SimTime {
        if self.quota.is_finite() {
            end_of(from, self.quota, self.rate)
        } else {
            SimTime::NEVER
        }
    }
}

/// When work that begins at an instant ends; beyond all time where it takes longer than time has.
#[inline]
fn end_of(from: SimTime, work: f64, rate: f64) -> SimTime {
    let span = span_of_work(work, rate);
    if span == SPAN_MAX && work > rate * MAX_SECONDS {
        return BEYOND;
    }
    from + span
}

// Work and segments
impl State {
    /// Brings the work that is left up to now.
    #[inline]
    pub(crate) fn settle(&mut self, slot: usize, recorder: &mut Recorder) {
        let now = self.now;
        let run = &mut self.runs[slot];
        let since = run.since;
        if since == now {
            return;
        }
        run.since = now;
        run.held_ns += (now - since).0;
        self.lives.of(run.job).run_ns = run.held_ns;
        if self.forks {
            self.settle_parts(slot, since, recorder);
            return;
        }
        let part = &mut run.parts[0];
        let work = part.rate * part.progress(since, now).seconds();
        let before = run.left;
        run.left = (before - work).max(0.0);
        part.quota = (part.quota - work).max(0.0);
        if self.config.checkpoint_interval.is_some() {
            self.note_checkpoint(slot, since, before);
        }
    }

    /// What a job that had so much left at an instant has left at its last checkpoint since.
    #[inline(never)]
    fn note_checkpoint(&mut self, slot: usize, since: SimTime, before: f64) {
        let run = &self.runs[slot];
        let part = &run.parts[0];
        let interval = self.config.checkpoint_interval;
        if let Some(last) = last_checkpoint(interval, part, since, self.now) {
            let from = since.max(part.progress_start);
            let kept = before - part.rate * (last - from).seconds();
            self.lives.of(run.job).remaining = kept.max(0.0);
        }
    }

    /// The same under a policy that forks jobs: the work of all parts adds up, and each knows what of its own is at
    /// risk. A part whose quota is used up now has done exactly that, and is paused.
    #[inline(never)]
    fn settle_parts(&mut self, slot: usize, since: SimTime, recorder: &mut Recorder) {
        let now = self.now;
        let interval = self.config.checkpoint_interval;
        let run = &mut self.runs[slot];
        let (from, before) = (run.progress_from(since), run.left);
        let (mut done, mut workers) = (0.0, 0);
        let mut used_up = SmallVec::<[usize; 4]>::new();
        for (at, part) in run.parts.iter_mut().enumerate() {
            let start = since.max(part.progress_start);
            let mut work = part.rate * part.progress(since, now).seconds();
            let is_due = part.progress_start <= from && part.quota_end(from) == now;
            if is_due && !part.is_paused() {
                work = part.quota;
                used_up.push(at);
            }
            if work > 0.0 {
                workers += 1;
            }
            done += work;
            part.quota -= work;
            match last_checkpoint(interval, part, since, now) {
                None => part.at_risk.work += work,
                Some(last) => {
                    let kept = before - part.rate * (last - start).seconds();
                    part.at_risk = AtRisk::safe(kept.max(0.0));
                    part.at_risk.work += part.rate * (now - last).seconds();
                }
            }
        }
        run.left = (before - done).max(0.0);
        if workers > 0 {
            for part in &mut run.parts {
                let own = part.rate > 0.0 && part.progress(since, now).0 > 0;
                if workers > u32::from(own) {
                    part.at_risk.left = None;
                }
            }
        }
        for at in used_up {
            self.pause(slot, at, recorder);
        }
    }

    /// Closes the present segment of a part at `now`. The work is settled by itself.
    #[inline]
    pub(crate) fn close_segment(
        &mut self,
        slot: usize,
        at: usize,
        recorder: &mut Recorder,
        reason: EndReason,
    ) {
        let part = &mut self.runs[slot].parts[at];
        let start = std::mem::replace(&mut part.segment_start, self.now);
        let is_useful = part.rate > 0.0 && part.progress_start <= start;
        let is_kept = self.out.keeps_segments || !is_useful;
        if is_kept && start < self.now {
            self.note_segment((slot, at), start, recorder, reason);
        }
    }

    /// Adds the segment of a part that ends now to the columns of its job and to the segments table.
    #[inline(never)]
    fn note_segment(
        &mut self,
        (slot, at): (usize, usize),
        start: SimTime,
        recorder: &mut Recorder,
        reason: EndReason,
    ) {
        let now = self.now;
        let run = &self.runs[slot];
        let (job, part) = (run.job, &run.parts[at]);
        let row = job.index();
        let overhead_end = now.min(part.progress_start);
        if overhead_end > start {
            if self.out.overhead_ns.is_empty() {
                self.out.overhead_ns.resize(self.jobs.len(), 0);
            }
            self.out.overhead_ns[row] += (overhead_end - start).0;
        }
        let progress = part.progress(start, now);
        #[expect(clippy::float_cmp, reason = "exactly 1 means that nothing is lost")]
        if part.locality != 1.0 && part.rate > 0.0 {
            let lost_s = progress.seconds() * (1.0 - part.locality);
            self.out.comm_s[row] += lost_s;
            self.out.comm_tier_s[part.tier as usize][row] += lost_s;
        }
        if let Some(lost_s) = self
            .out
            .share_lost_s
            .get_mut(row)
            .filter(|_| part.rate > 0.0)
        {
            let slowdown = part.inflation * part.xi;
            *lost_s += progress.seconds() * part.locality * (1.0 - 1.0 / slowdown);
            let alone_s = progress.seconds() / slowdown;
            recorder.totals.sharing.alone_gpu_s += f64::from(part.gpus.gpus()) * alone_s;
        }
        if let Some(kept) = self.out.kept_ns.get_mut(row) {
            *kept += part.kept() * i128::from(progress.0);
        }
        if self.forks || self.elastic.is_some() {
            note_part(&mut self.out, part, row, (start, now), recorder);
        }
        if part.rate <= 0.0 {
            recorder.totals.paused_gpu_ns += i128::from(progress.0) * i128::from(part.gpus.gpus());
        }
        recorder.segment(self, (job, part), start, reason);
    }

    /// A part keeps its GPUs without progress: its quota is used up.
    #[cold]
    fn pause(&mut self, slot: usize, at: usize, recorder: &mut Recorder) {
        self.note_useful_of(slot, at);
        self.close_segment(slot, at, recorder, EndReason::Retimed);
        let part = &mut self.runs[slot].parts[at];
        part.quota = 0.0;
        part.rate = 0.0;
    }

    /// The event of a run has come: `true` if its work is done, else an overhead was over or a quota used up, and the
    /// run goes on.
    #[inline]
    pub(crate) fn step(&mut self, slot: usize, queue: &mut EventQueue, rec: &mut Recorder) -> bool {
        if self.runs[slot].ends_next() {
            return true;
        }
        self.change_by_itself(slot, queue, rec);
        false
    }

    #[cold]
    fn change_by_itself(&mut self, slot: usize, queue: &mut EventQueue, recorder: &mut Recorder) {
        let run = &mut self.runs[slot];
        run.generation = run.generation.wrapping_add(1);
        if run.is_forked() {
            if !self.config.overhead_interferes {
                self.touch_parts(slot);
            }
            self.settle(slot, recorder);
            self.schedule(slot, queue);
            return;
        }
        if run.begins_next() {
            self.touch_parts(slot); // from now on it slows its co-runners down
            self.schedule(slot, queue);
            return;
        }
        if run.knot > 0.0 && run.parts[0].quota >= run.left - run.knot {
            self.cross_knot(slot, queue, recorder);
            return;
        }
        // what is left is exact: no time is converted back
        let left = run.left - run.parts[0].quota;
        self.settle(slot, recorder);
        self.pause(slot, 0, recorder);
        let run = &mut self.runs[slot];
        run.left = left;
        run.rate = 0.0;
        run.finish = SimTime::NEVER;
    }

    /// Pushes the next event of a run, whose work is settled.
    #[inline]
    pub(crate) fn schedule(&mut self, slot: usize, queue: &mut EventQueue) {
        let tells_start = !self.config.overhead_interferes && self.is_shared();
        let run = &mut self.runs[slot];
        (run.rate, run.finish) = match &run.parts[..] {
            [part] if part.rate > 0.0 && tells_start && part.progress_start > self.now => {
                (part.rate, part.progress_start)
            }
            [part] if part.rate > 0.0 => {
                let from = run.since.max(part.progress_start);
                let work = part.quota.min(run.left - run.knot);
                (part.rate, end_of(from, work, part.rate))
            }
            _ => run.pace_of_parts(),
        };
        if run.rate > 0.0 {
            let event = EventClass::Completion;
            queue.push(run.finish, event, slot as u32, run.generation);
        }
    }

    /// As [`Self::schedule`], for a run whose event may be in the queue.
    #[inline]
    pub(crate) fn reschedule(&mut self, slot: usize, queue: &mut EventQueue) {
        let run = &mut self.runs[slot];
        if run.rate > 0.0 {
            run.generation = run.generation.wrapping_add(1);
            queue.note_stale();
        }
        self.schedule(slot, queue);
    }
}

/// Adds what a part of a forked job held and lost in a segment: parts may have unlike numbers of GPUs.
#[cold]
fn note_part(
    out: &mut JobColumnsOut,
    part: &Part,
    row: usize,
    (start, now): (SimTime, SimTime),
    recorder: &mut Recorder,
) {
    // the segment is closed: the part itself has a new start
    let held = now - start;
    let gpus = f64::from(part.gpus.gpus());
    if let Some(parts_ns) = out.parts_ns.get_mut(row) {
        *parts_ns += held.0;
    }
    out.gpu_ns[row] += i128::from(held.0) * i128::from(part.gpus.gpus());
    let progress = part.progress(start, now);
    if let Some(attained_ns) = out.attained_ns.get_mut(row) {
        *attained_ns += i128::from(progress.0) * i128::from(part.gpus.gpus());
    }
    let totals = &mut recorder.totals.lost_by_parts;
    totals.overhead += gpus * SimSpan(held.0 - progress.0).seconds();
    if part.rate > 0.0 {
        let slowdown = part.inflation * part.xi;
        totals.comm += gpus * progress.seconds() * (1.0 - part.locality);
        totals.shared += gpus * progress.seconds() * part.locality * (1.0 - 1.0 / slowdown);
    }
}

/// The last checkpoint that a part has taken since an instant, at a multiple of the interval of its progress.
#[inline]
fn last_checkpoint(
    interval: Option<SimSpan>,
    part: &Part,
    since: SimTime,
    now: SimTime,
) -> Option<SimTime> {
    let interval = interval?;
    let origin = part.progress_start;
    let passed = (now - origin).0.max(0) / interval.0;
    let last = SimTime(origin.0 + passed * interval.0);
    (last > since.max(origin)).then_some(last)
}

// Start, stop, change
impl State {
    /// Gives a job a part: its record, rate and next event.
    #[inline]
    pub(crate) fn begin(
        &mut self,
        job: JobId,
        new: NewPart<'_>,
        queue: &mut EventQueue,
        recorder: &mut Recorder,
    ) {
        let is_shared = self.is_shared();
        if is_shared {
            self.note_useful(new.gpus);
            self.touch_residents(new.gpus);
        }
        let bytes = self.bytes_of(job, new.sub_batch);
        self.occupancy.take(job, new.gpus, bytes);
        let pace = self.pace_of(job, &new);
        if self.forks && self.lives.slot(job).is_some() {
            self.add_part(job, (new, pace), queue, recorder);
            return;
        }
        let slot = self.free_slots.pop().unwrap_or_else(|| {
            self.runs.push(Run::default());
            (self.runs.len() - 1) as u32
        });
        let (jobs, types) = (&self.jobs, &self.types);
        let gang = || types.gang(jobs, job);
        let (remaining, run_ns) = self.lives.start(job, slot, self.now, gang);
        let at = slot as usize;
        let is_far = pace.tier == Tier::Network;
        let run = &mut self.runs[at];
        run.parts[0].fill(new, pace, self.now, remaining);
        run.job = job;
        run.rate = 0.0;
        run.finish = SimTime::NEVER;
        run.started = self.now;
        run.since = self.now;
        run.left = remaining;
        run.knot = 0.0;
        run.held_ns = run_ns;
        run.is_touched = false;
        if self.elastic.is_some() {
            self.find_knot(at);
        }
        let is_sending = is_far && self.uplinks.is_some() && self.send(slot);
        if is_shared || is_sending {
            self.touch(job);
        } else {
            self.schedule(at, queue);
        }
    }

    /// How fast a part will go that starts now, alone on its GPUs.
    #[inline]
    fn pace_of(&self, job: JobId, new: &NewPart<'_>) -> Pace {
        let gpus = &*new.gpus;
        let gpu_type = self.occupancy.type_of(gpus.by_server()[0].server);
        let is_plain = gpus.by_server().len() == 1 && self.types.copy_gpus().is_none();
        let (tier, base) = if is_plain {
            (Tier::Server, self.rates.base(&self.jobs, job, gpu_type))
        } else {
            (self.cluster.tier(gpus), self.base_on(job, gpus))
        };
        let base = match &self.elastic {
            None => base,
            Some(_) => self.elastic_base(job, new).unwrap_or(base),
        };
        let locality = self.locality_on(job, gpus);
        let inflation = match new.accum {
            None => self.inflation(job, new.sub_batch, gpu_type, Some(gpus.by_server().len())),
            Some(_) => 1.0, // the base rate is that of the batch
        };
        Pace {
            gpu_type,
            tier,
            base,
            locality,
            inflation,
            rate: if self.is_shared() {
                0.0 // until it is re-timed at the end of the instant
            } else {
                (base * locality) / inflation
            },
            has_details: self.is_shared() || self.config.segments,
        }
    }

    /// A running job gets a further part.
    #[cold]
    fn add_part(
        &mut self,
        job: JobId,
        (new, pace): (NewPart<'_>, Pace),
        queue: &mut EventQueue,
        recorder: &mut Recorder,
    ) {
        let slot = self.slot_of(job);
        self.settle(slot, recorder);
        let mut part = Part::default();
        let run = &mut self.runs[slot];
        part.fill(new, pace, self.now, run.left);
        let server = part.gpus.by_server()[0].server;
        let at = run
            .parts
            .partition_point(|other| other.gpus.by_server()[0].server < server);
        run.parts.insert(at, part);
        run.started = self.now;
        self.reschedule(slot, queue);
        if self.is_shared() {
            self.touch(job);
        }
    }

    /// Puts a gang over racks on their up-links; whether it sends anything through them.
    #[cold]
    #[inline(never)]
    fn send(&mut self, slot: u32) -> bool {
        let run = &self.runs[slot as usize];
        let slowest = self.slowest_type(run.job, run.gpus());
        let run = &mut self.runs[slot as usize];
        let (Some(uplinks), Some(model)) = (&mut self.uplinks, &self.config.locality) else {
            return false;
        };
        let part = &mut run.parts[0];
        let gang = self.jobs.gang(run.job, slowest);
        let Some(load) = model.load(&gang, Shape::of(&self.cluster, &part.gpus)) else {
            return false;
        };
        let servers = part.gpus.by_server().iter();
        let racks = servers.map(|one| self.cluster.server(one.server).rack.0);
        let mut racks: SmallVec<[u32; 4]> = racks.collect();
        racks.sort_unstable();
        racks.dedup();
        uplinks.join(slot, run.job, racks, load, part.locality);
        part.rate = 0.0; // until the up-links are shared at the end of the instant
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
        uplinks.share(moved);
        for &job in &moved[first..] {
            self.touch(job);
        }
    }

    /// Takes the GPUs from a part; the job goes on with the others, or has none left: what becomes of it then, the
    /// caller says. The next event of the run, if it is in the queue, dies by generation.
    #[inline]
    pub(crate) fn end_part(
        &mut self,
        slot: usize,
        at: usize,
        recorder: &mut Recorder,
        reason: EndReason,
    ) {
        self.settle(slot, recorder);
        if self.is_shared() {
            self.end_sharing(slot, at, recorder);
        }
        self.close_segment(slot, at, recorder, reason);
        self.vacate(slot, at);
        if self.runs[slot].is_forked() {
            self.drop_one_of(slot, at, reason);
        } else {
            self.free_run(slot, reason);
        }
    }

    /// Takes the GPUs from all parts of a job that is done, by server; each is logged.
    #[inline]
    pub(crate) fn end_run(&mut self, slot: usize, recorder: &mut Recorder) {
        let parts = self.runs[slot].parts.len();
        if self.forks {
            self.drop_quotas(slot);
        }
        for _ in 0..parts {
            self.log_part(slot, 0, recorder, Logged::Finish);
            self.end_part(slot, 0, recorder, EndReason::Finished);
        }
    }

    /// A quota that is used up when its job is done ends with the job: no pause.
    #[cold]
    fn drop_quotas(&mut self, slot: usize) {
        for part in &mut self.runs[slot].parts {
            if part.rate > 0.0 {
                part.quota = f64::INFINITY;
            }
        }
    }

    /// Adds what happens to a part to the hash of the log.
    #[inline]
    pub(crate) fn log_part(&self, slot: usize, at: usize, recorder: &mut Recorder, what: Logged) {
        let run = &self.runs[slot];
        let gpus = &run.parts[at].gpus;
        recorder.hash.event(what, self.now, run.job, gpus);
    }

    /// Whether a part that ends so loses its work since its last safe point.
    #[inline]
    fn falls_back(&self, reason: EndReason) -> bool {
        matches!(reason, EndReason::Failed)
            || (self.config.checkpoint_interval.is_some()
                && matches!(reason, EndReason::Preempted | EndReason::Moved))
    }

    /// Gives back the record of a run whose only part has left its GPUs.
    #[inline]
    fn free_run(&mut self, slot: usize, reason: EndReason) {
        let falls_back = self.falls_back(reason);
        let run = &mut self.runs[slot];
        if falls_back && self.forks {
            let lost = run.parts[0].at_risk;
            run.left = lost.left.unwrap_or(run.left + lost.work);
        }
        if !falls_back || self.forks {
            self.lives.of(run.job).remaining = run.left;
        }
        run.generation = run.generation.wrapping_add(1);
        self.free_slots.push(slot as u32);
        if let Some(uplinks) = &mut self.uplinks {
            self.is_retiming_due |= uplinks.leave(slot as u32);
        }
    }

    /// Removes one of several parts, which has left its GPUs, from a run.
    #[cold]
    fn drop_one_of(&mut self, slot: usize, at: usize, reason: EndReason) {
        let falls_back = self.falls_back(reason);
        let run = &mut self.runs[slot];
        let part = run.parts.remove(at);
        if falls_back {
            run.left += part.at_risk.work;
            for other in &mut run.parts {
                other.at_risk.left = None;
            }
        }
    }

    #[cold]
    fn end_sharing(&mut self, slot: usize, at: usize, recorder: &mut Recorder) {
        self.note_useful_of(slot, at);
        self.note_sharing(slot, at, false, recorder);
    }

    /// Takes a part off its GPUs.
    #[inline]
    fn vacate(&mut self, slot: usize, at: usize) {
        let run = &self.runs[slot];
        let part = &run.parts[at];
        let bytes = self.bytes_of(run.job, part.sub_batch);
        self.occupancy.give(run.job, &part.gpus, bytes);
        if self.is_shared() {
            let gpus = std::mem::take(&mut self.runs[slot].parts[at].gpus);
            self.touch_residents(&gpus);
        }
    }

    /// Lets a part go on where it is, on new terms.
    pub(crate) fn keep(
        &mut self,
        slot: usize,
        at: usize,
        terms: &Terms,
        queue: &mut EventQueue,
        recorder: &mut Recorder,
    ) {
        let job = self.runs[slot].job;
        if let Some(sub_batch) = terms.sub_batch {
            let before = std::mem::replace(&mut self.runs[slot].parts[at].sub_batch, sub_batch);
            let (before, after) = (self.bytes_of(job, before), self.bytes_of(job, sub_batch));
            let gpus = self.runs[slot].parts[at].gpus.clone();
            self.occupancy.resize(&gpus, before, after);
            self.change_batch(slot, at, terms.accum);
        }
        if terms.overhead.is_some() || terms.quota.is_some() {
            self.renew(slot, at, terms, queue, recorder);
        }
        if self.is_shared() {
            self.touch(job);
        } else {
            self.retime(slot, queue, recorder);
        }
    }

    /// Gives a part another quota or a pause from now on, and its rate back if it was paused at its quota.
    #[cold]
    fn renew(
        &mut self,
        slot: usize,
        at: usize,
        terms: &Terms,
        queue: &mut EventQueue,
        recorder: &mut Recorder,
    ) {
        self.settle(slot, recorder);
        self.note_useful_of(slot, at);
        self.close_segment(slot, at, recorder, EndReason::Retimed);
        let run = &mut self.runs[slot];
        let part = &mut run.parts[at];
        if let Some(overhead) = terms.overhead {
            part.progress_start = self.now + overhead;
            part.at_risk = AtRisk::safe(run.left);
            self.lives.of(run.job).remaining = run.left;
            if !self.config.overhead_interferes {
                self.touch_parts(slot);
            }
        }
        let part = &mut self.runs[slot].parts[at];
        if let Some(quota) = terms.quota {
            part.quota = quota;
        }
        if !part.is_paused() {
            let speed = self.speed_now(slot, at);
            self.note_sharing(slot, at, speed.is_shared, recorder);
            self.set_speed(slot, at, speed);
        }
        self.reschedule(slot, queue);
    }

    /// Re-times all touched jobs, in job-index order; once per instant.
    pub(crate) fn retime_touched(&mut self, queue: &mut EventQueue, recorder: &mut Recorder) {
        let mut touched = std::mem::take(&mut self.touched);
        touched.sort_unstable();
        for &job in &touched {
            if let Some(slot) = self.lives.slot(job) {
                self.runs[slot as usize].is_touched = false;
                self.retime(slot as usize, queue, recorder);
            }
        }
        touched.clear();
        self.touched = touched;
    }

    /// Gives the parts of a job the rates that their places, co-runners and links leave them now. Where nothing
    /// changes, no segment ends.
    fn retime(&mut self, slot: usize, queue: &mut EventQueue, recorder: &mut Recorder) {
        let mut is_changed = false;
        for at in 0..self.runs[slot].parts.len() {
            is_changed |= self.retime_part(slot, at, recorder);
        }
        if is_changed {
            self.reschedule(slot, queue);
        }
    }

    /// What the sub-batch of a part costs it.
    #[inline]
    fn inflation_of(&self, job: JobId, part: &Part) -> f64 {
        match part.accum {
            None => {
                let places = part.gpus.by_server();
                let gpu_type = self.occupancy.type_of(places[0].server);
                self.inflation(job, part.sub_batch, gpu_type, Some(places.len()))
            }
            Some(_) => 1.0, // its base rate is that of its batch
        }
    }

    /// Whether the part has another rate from now on.
    fn retime_part(&mut self, slot: usize, at: usize, recorder: &mut Recorder) -> bool {
        let speed = self.speed_now(slot, at);
        self.note_sharing(slot, at, speed.is_shared, recorder);
        self.count_start(slot, at, speed.is_shared, recorder);
        let part = &mut self.runs[slot].parts[at];
        let is_moved = speed.locality.to_bits() != part.locality.to_bits();
        let is_same = speed.rate.to_bits() == part.rate.to_bits() && !is_moved;
        if is_same || part.is_paused() {
            (part.xi, part.inflation) = (speed.xi, speed.inflation);
            return false;
        }
        self.settle(slot, recorder);
        self.note_useful_of(slot, at);
        self.close_segment(slot, at, recorder, EndReason::Retimed);
        self.set_speed(slot, at, speed);
        true
    }

    /// How fast a part goes where it is, beside the residents of now.
    #[inline]
    fn speed_now(&self, slot: usize, at: usize) -> Speed {
        let run = &self.runs[slot];
        let (xi, is_shared) = self.xi_now(run.job, &run.parts[at].gpus);
        Speed {
            is_shared,
            ..self.speed_with(slot, at, xi)
        }
    }

    /// How fast a part goes where it is, at a slowdown factor of its co-runners, if there are any.
    #[inline]
    pub(crate) fn speed_with(&self, slot: usize, at: usize, xi: f64) -> Speed {
        let run = &self.runs[slot];
        let part = &run.parts[at];
        let locality = self.locality_now(slot, part);
        let inflation = self.inflation_of(run.job, part);
        Speed {
            locality,
            xi,
            inflation,
            rate: (part.base * locality) / (inflation * xi),
            is_shared: self.is_shared(),
        }
    }

    /// Opens a segment of a part at this speed.
    pub(crate) fn set_speed(&mut self, slot: usize, at: usize, speed: Speed) {
        let run = &self.runs[slot];
        let others = if self.config.segments && speed.is_shared {
            let partners = self.partners(run.job, &run.parts[at].gpus);
            partners.iter().map(|partner| partner.0.0).collect()
        } else {
            Vec::new()
        };
        let part = &mut self.runs[slot].parts[at];
        (part.locality, part.xi, part.inflation) = (speed.locality, speed.xi, speed.inflation);
        part.rate = speed.rate;
        if let Some(details) = &mut part.details {
            details.co_runners = others;
            details.segment_sub_batch = part.sub_batch;
        }
    }

    /// Marks a running job to be re-timed at the end of the instant.
    fn touch(&mut self, job: JobId) {
        let Some(slot) = self.lives.slot(job) else {
            return;
        };
        let run = &mut self.runs[slot as usize];
        if !run.is_touched {
            run.is_touched = true;
            self.touched.push(job);
            self.is_retiming_due = true;
        }
    }

    /// Marks all jobs on the GPUs of a run.
    fn touch_parts(&mut self, slot: usize) {
        for at in 0..self.runs[slot].parts.len() {
            let gpus = self.runs[slot].parts[at].gpus.clone();
            self.touch_residents(&gpus);
        }
    }

    /// Marks the jobs on some GPUs.
    fn touch_residents(&mut self, gpus: &GpuSet) {
        for one in gpus.by_server() {
            let held = self.occupancy.held_mask(one.server, one.mask);
            // the GPUs of a gang mostly have the same jobs on them
            let mut last = [NO_JOB; 2];
            let base = self.occupancy.gpu(one.server, 0);
            for slot in slots(held) {
                let pair = self.occupancy.pair(base + slot as usize);
                if std::mem::replace(&mut last, pair) == pair {
                    continue;
                }
                for &job in &pair {
                    if job != NO_JOB {
                        self.touch(job);
                    }
                }
            }
        }
    }

    /// Adds the time that a part has spent next to a co-runner. To be called before its slowdown factor changes.
    fn note_sharing(&mut self, slot: usize, at: usize, is_shared: bool, recorder: &mut Recorder) {
        if !self.is_shared() {
            return;
        }
        let now = self.now;
        let run = &mut self.runs[slot];
        let part = &mut run.parts[at];
        let Some(details) = &mut part.details else {
            return;
        };
        let next = if is_shared { now } else { SimTime::NEVER };
        let since = std::mem::replace(&mut details.shared_since, next);
        if since < now {
            let span = now - since;
            self.out.share_ns[run.job.index()] += span.0;
            let totals = &mut recorder.totals.sharing;
            totals.part_ns += i128::from(span.0);
            totals.xi_s += part.xi * span.seconds();
        }
    }

    /// Counts a part that started at this instant by what it has beside it.
    fn count_start(&mut self, slot: usize, at: usize, is_shared: bool, recorder: &mut Recorder) {
        if !self.is_shared() {
            return;
        }
        let run = &mut self.runs[slot];
        let part = &mut run.parts[at];
        let Some(details) = part.details.as_mut().filter(|details| details.is_new) else {
            return;
        };
        details.is_new = false;
        let batch = self.jobs.batch_size(run.job);
        let totals = &mut recorder.totals.sharing;
        totals.starts += u64::from(is_shared);
        totals.sub_batch_starts += u64::from(part.sub_batch > 0 && part.sub_batch < batch);
    }

    /// The run is over: closes what a running job has open.
    pub(crate) fn close_run(&mut self, job: JobId, recorder: &mut Recorder) {
        let slot = self.slot_of(job);
        self.settle(slot, recorder);
        for at in 0..self.runs[slot].parts.len() {
            self.note_useful_of(slot, at);
            self.close_segment(slot, at, recorder, EndReason::Stopped);
            self.note_sharing(slot, at, false, recorder);
        }
    }
}
