//! Changes running jobs: starts and stops them, re-times the jobs that a change affects, and handles the events of
//! running jobs (`docs/concepts/jobs-and-rates.md`, `overhead-and-failures.md`, `sharing.md`, `parts.md`).
//!
//! `running.rs` computes the progress of work, and `rates.rs` computes the rates. The accounts record the GPU time that
//! jobs held and lost; this module notifies the accounts of completed segments. A change costs O(affected jobs x their
//! GPUs).

use crate::accounts::{Accounts, Segment};
use crate::occupancy::NO_JOB;
use crate::queue::{EventClass, EventQueue};
use crate::record::{Logged, Recorder};
use crate::segments::EndReason;
use crate::state::State;
use crate::state::running::{AtRisk, NewPart, Pace, Part, Run, Speed};
use crate::structures::bits::slots;
use crate::traits::Knowledge;
use crate::view::ClusterView;
use gangline_model::{GpuSet, JobId, Shape, SimTime, Terms, Tier};
use smallvec::SmallVec;

/// The state of a run, and the structures that record its changes: future events, accounts and results.
#[derive(Clone, Debug)]
pub(crate) struct Motion {
    pub(crate) state: State,
    pub(crate) queue: EventQueue,
    pub(crate) accounts: Accounts,
    pub(crate) recorder: Recorder,
}

impl Motion {
    /// Returns the state as a policy sees it.
    pub(crate) fn view(&self, knowledge: Knowledge) -> ClusterView<'_> {
        ClusterView {
            state: &self.state,
            accounts: &self.accounts,
            knowledge,
        }
    }

    // These methods settle work and close segments.

    /// Updates the remaining work of a running job to the current instant.
    #[inline]
    fn settle(&mut self, record: usize) {
        let state = &mut self.state;
        let run = &mut state.runs[record];
        let span = (run.since, state.now);
        if span.0 == span.1 {
            return;
        }
        run.since = span.1;
        let life = state.lives.of(run.job);
        life.run_ns += (span.1 - span.0).0;
        let interval = state.config.checkpoint_interval;
        if state.features.has_run_time {
            for part in &mut run.parts {
                part.settle_risk(span, interval);
            }
        }
        if state.features.forks {
            for at in run.settle_parts(span, interval) {
                self.pause(record, at);
            }
        } else if let Some(left) = run.settle(span, interval) {
            life.remaining = left;
        }
    }

    /// Closes the current segment of a part at `now`. The caller must have settled the work.
    #[inline]
    fn close_segment(&mut self, record: usize, at: usize, reason: EndReason) {
        let now = self.state.now;
        let part = &mut self.state.runs[record].parts[at];
        let start = std::mem::replace(&mut part.segment_start, now);
        if start < now && self.accounts.keeps(part, start) {
            self.note_segment(record, at, start, reason);
        }
    }

    #[inline(never)]
    fn note_segment(&mut self, record: usize, at: usize, start: SimTime, reason: EndReason) {
        let run = &self.state.runs[record];
        let segment = Segment {
            job: run.job,
            part: &run.parts[at],
            start,
            end: self.state.now,
        };
        self.accounts.note_useful(&self.state, &segment.part.gpus);
        self.accounts.add(segment);
        self.recorder.segment(&self.state, segment, reason);
    }

    /// Pauses a part that has used up its quota: it keeps its GPUs without progress.
    #[cold]
    fn pause(&mut self, record: usize, at: usize) {
        self.close_segment(record, at, EndReason::Retimed);
        let part = &mut self.state.runs[record].parts[at];
        part.quota = 0.0;
        part.rate = 0.0;
    }

    /// Informs the accounts whether a part now has a co-runner.
    #[inline]
    fn note_sharing(&mut self, record: usize, at: usize, is_shared: bool) {
        let run = &mut self.state.runs[record];
        let part = &mut run.parts[at];
        self.accounts
            .note_sharing(run.job, part, is_shared, self.state.now);
    }

    // These methods handle the events of running jobs.

    /// Handles the next event of a running job. Returns `true` if the work of the job is done; otherwise, an overhead
    /// or a phase has ended or a quota is used up, and the run continues.
    #[inline]
    pub(crate) fn step(&mut self, record: usize) -> bool {
        if self.state.runs[record].ends_next() {
            return true;
        }
        self.change_by_itself(record);
        false
    }

    #[cold]
    fn change_by_itself(&mut self, record: usize) {
        let run = &mut self.state.runs[record];
        run.generation = run.generation.wrapping_add(1);
        if run.is_forked() {
            if self.state.features.starts_quietly {
                self.touch_parts(record);
            }
            self.settle(record);
            self.schedule(record);
            return;
        }
        if run.begins_next() {
            self.touch_parts(record); // The job slows its co-runners down from now on.
            self.schedule(record);
            return;
        }
        if run.knot > 0.0 && run.parts[0].quota >= run.left - run.knot {
            self.cross_knot(record);
            return;
        }
        // The remaining work is exact, because it is not computed from a time.
        let left = run.left - run.parts[0].quota;
        self.settle(record);
        self.pause(record, 0);
        let run = &mut self.state.runs[record];
        run.left = left;
        run.rate = 0.0;
        run.finish = SimTime::NEVER;
    }

    /// Begins the next phase of a job, in which the job has a different rate. The caller has already removed the job's
    /// event from the queue.
    #[cold]
    fn cross_knot(&mut self, record: usize) {
        let run = &self.state.runs[record];
        // The remaining work is exact, because it is not computed from a time.
        let (knot, quota) = (run.knot, run.parts[0].quota - (run.left - run.knot));
        self.settle(record);
        self.close_segment(record, 0, EndReason::Retimed);
        let run = &mut self.state.runs[record];
        run.left = knot;
        run.parts[0].quota = quota.max(0.0);
        let xi = run.parts[0].xi;
        self.state.runs[record].phase += 1;
        self.state.runs[record].knot = self.state.next_knot(record);
        self.set_base(record);
        if self.state.runs[record].parts[0].is_paused() {
            self.state.runs[record].parts[0].rate = 0.0;
        } else {
            let speed = self.state.speed_with(record, 0, xi);
            self.set_speed(record, 0, speed);
        }
        if self.state.features.shares {
            // The co-runners may also change at this instant, so the rate is computed again at the end of the instant.
            self.touch(self.state.runs[record].job);
        }
        self.schedule(record);
    }

    /// Sets the base rate of a run's only part according to its phase and batch size.
    fn set_base(&mut self, record: usize) {
        self.state.runs[record].parts[0].base = self.state.base_now(record);
    }

    /// Adds the next event of a run to the queue; the work of the run must be settled.
    #[inline]
    fn schedule(&mut self, record: usize) {
        let state = &mut self.state;
        let run = &mut state.runs[record];
        (run.rate, run.finish) = run.next_event(state.now, state.features.starts_quietly);
        if run.rate > 0.0 {
            let event = EventClass::Completion;
            self.queue
                .push(run.finish, event, record as u32, run.generation);
        }
    }

    /// Cancels the previous event of a run if it is still in the queue, and adds the next event.
    #[inline]
    fn reschedule(&mut self, record: usize) {
        let run = &mut self.state.runs[record];
        if run.has_event() {
            run.generation = run.generation.wrapping_add(1);
            self.queue.note_stale();
        }
        self.schedule(record);
    }

    // These methods handle arrivals, starts and stops.

    #[inline]
    pub(crate) fn arrive(&mut self) -> JobId {
        let state = &mut self.state;
        let work = state.jobs.work(state.lives.next());
        let job = state.lives.arrive(work, self.recorder.totals.active_ns);
        if let Some(past) = &mut state.past {
            past.note_arrival(&state.jobs, job, state.now);
        }
        job
    }

    /// Starts a part of a job: sets up the record, the rate and the next event.
    #[inline]
    pub(crate) fn begin(&mut self, job: JobId, new: NewPart<'_>) {
        let shares = self.state.features.shares;
        if shares {
            self.accounts.note_useful(&self.state, new.gpus);
            self.touch_residents(new.gpus);
        }
        let state = &mut self.state;
        let bytes = state.bytes_of(job, new.sub_batch);
        state.occupancy.take(job, new.gpus, bytes);
        let pace = state.pace_of(job, &new);
        if state.features.forks
            && let Some(record) = state.lives.record(job)
        {
            self.add_part(record as usize, new, pace);
            return;
        }
        let record = state.free_records.pop().unwrap_or_else(|| {
            state.runs.push(Run::default());
            (state.runs.len() - 1) as u32
        });
        let at = record as usize;
        let gang = || state.types.gang(job);
        let remaining = state.lives.start(job, record, state.now, gang);
        let run = &mut state.runs[at];
        run.parts[0].fill(new, pace, state.now, remaining);
        run.job = job;
        run.rate = 0.0;
        run.finish = SimTime::NEVER;
        run.started = state.now;
        run.since = state.now;
        run.left = remaining;
        run.knot = 0.0;
        run.is_touched = false;
        if state.features.has_knots {
            state.runs[at].phase = state.phase_at(job, remaining);
            state.runs[at].knot = state.next_knot(at);
        }
        let is_far = pace.tier == Tier::Network;
        let is_sending = is_far && state.uplinks.is_some() && self.send(at);
        if shares || is_sending {
            self.touch(job);
        } else {
            self.schedule(at);
        }
    }

    /// Gives a running job an additional part.
    #[cold]
    fn add_part(&mut self, record: usize, new: NewPart<'_>, pace: Pace) {
        self.settle(record);
        let mut part = Part::default();
        let run = &mut self.state.runs[record];
        part.fill(new, pace, self.state.now, run.left);
        let server = part.gpus.by_server()[0].server;
        let at = run
            .parts
            .partition_point(|other| other.gpus.by_server()[0].server < server);
        run.parts.insert(at, part);
        run.started = self.state.now;
        let job = run.job;
        self.reschedule(record);
        if self.state.features.shares {
            self.touch(job);
        }
    }

    /// If a gang spans racks, adds it to the uplinks of these racks. Returns whether the gang uses any uplinks.
    #[cold]
    #[inline(never)]
    fn send(&mut self, record: usize) -> bool {
        let state = &mut self.state;
        let run = &state.runs[record];
        let slowest = state.slowest_type(run.job, run.gpus());
        let run = &mut state.runs[record];
        let (Some(uplinks), Some(model)) = (&mut state.uplinks, &state.config.locality) else {
            return false;
        };
        let part = &mut run.parts[0];
        let gang = state.jobs.gang(run.job, slowest);
        let Some(load) = model.load(&gang, Shape::of(&state.cluster, &part.gpus)) else {
            return false;
        };
        let servers = part.gpus.by_server().iter();
        let racks = servers.map(|one| state.cluster.server(one.server).rack.0);
        let mut racks: SmallVec<[u32; 4]> = racks.collect();
        racks.sort_unstable();
        racks.dedup();
        uplinks.join(record as u32, run.job, racks, load, part.locality);
        part.rate = 0.0; // The rate is 0 until the uplinks are shared at the end of the instant.
        true
    }

    /// Ends a part of an unfinished job. A job that has no parts left waits again.
    pub(crate) fn drop_part(&mut self, record: usize, at: usize, reason: EndReason) {
        if self.state.features.has_run_time {
            let is_failure = reason == EndReason::Failed;
            self.state.note_stop(record, at, is_failure);
        }
        let run = &self.state.runs[record];
        let (job, is_last) = (run.job, !run.is_forked());
        if is_last && run.has_event() {
            self.queue.note_stale();
        }
        self.end_part(record, at, reason);
        if is_last {
            self.state.requeue(job);
            if reason != EndReason::Moved {
                self.state.lives.note_loss(job);
            }
        } else {
            self.reschedule(record);
        }
    }

    /// Ends a job that is done. Its parts release their GPUs in the order of their servers, and the end of each part is
    /// logged.
    #[inline]
    pub(crate) fn end_run(&mut self, record: usize) -> JobId {
        let Run { job, ref parts, .. } = self.state.runs[record];
        let parts = parts.len();
        if self.state.features.forks {
            self.drop_quotas(record);
        }
        for _ in 0..parts {
            self.log_part(record, 0, Logged::Finish);
            self.end_part(record, 0, EndReason::Finished);
        }
        let active_ns = self.recorder.totals.active_ns;
        let state = &mut self.state;
        state.lives.finish(job, state.now, active_ns);
        if let Some(mut past) = state.past.take() {
            past.note_finish(&state.jobs, job, state.now, state.duration(job));
            state.past = Some(past);
        }
        job
    }

    /// Removes quotas that are used up exactly when the job ends, so that the job does not pause.
    #[cold]
    fn drop_quotas(&mut self, record: usize) {
        for part in &mut self.state.runs[record].parts {
            if part.rate > 0.0 {
                part.quota = f64::INFINITY;
            }
        }
    }

    /// Closes the open segments of a running job at the end of the run.
    pub(crate) fn close_run(&mut self, job: JobId) {
        let record = self.state.record_of(job);
        self.settle(record);
        for at in 0..self.state.runs[record].parts.len() {
            self.close_segment(record, at, EndReason::Stopped);
            self.note_sharing(record, at, false);
        }
    }

    /// Adds an event of a part to the log hash.
    #[inline]
    pub(crate) fn log_part(&mut self, record: usize, at: usize, what: Logged) {
        let run = &self.state.runs[record];
        let gpus = &run.parts[at].gpus;
        self.recorder
            .hash
            .event(what, self.state.now, run.job, gpus);
    }

    pub(crate) fn count_stop(&mut self, job: JobId, reason: EndReason) {
        if reason == EndReason::Preempted {
            self.accounts.preemptions += 1;
            self.state.lives.of(job).preemptions += 1;
        } else {
            self.accounts.count_migration(job);
        }
    }

    /// Ends a part and releases its GPUs. The job continues with its other parts. If there are none, the record is
    /// freed, and the caller must requeue or finish the job. An event of the freed record that is still in the queue
    /// becomes stale, because the generation changes.
    #[inline]
    fn end_part(&mut self, record: usize, at: usize, reason: EndReason) {
        self.settle(record);
        self.close_segment(record, at, reason);
        if self.state.features.has_run_time && self.falls_back(reason) {
            let run = &self.state.runs[record];
            self.accounts.note_loss(run.job, &run.parts[at]);
        }
        if self.state.features.shares {
            self.note_sharing(record, at, false);
        }
        self.vacate(record, at);
        if self.state.runs[record].is_forked() {
            self.drop_one_of(record, at, reason);
        } else {
            self.free_run(record, reason);
        }
    }

    /// Releases the GPUs of a part.
    #[inline]
    fn vacate(&mut self, record: usize, at: usize) {
        let state = &mut self.state;
        let run = &state.runs[record];
        let part = &run.parts[at];
        let bytes = state.bytes_of(run.job, part.sub_batch);
        state.occupancy.give(run.job, &part.gpus, bytes);
        if state.features.shares {
            let gpus = std::mem::take(&mut state.runs[record].parts[at].gpus);
            self.touch_residents(&gpus);
        }
    }

    /// Returns whether a part that ends for this reason loses the work that it did since its last safe point.
    #[inline]
    fn falls_back(&self, reason: EndReason) -> bool {
        matches!(reason, EndReason::Failed)
            || (self.state.config.checkpoint_interval.is_some()
                && matches!(reason, EndReason::Preempted | EndReason::Moved))
    }

    /// Frees the record of a run after its only part has left its GPUs.
    #[inline]
    fn free_run(&mut self, record: usize, reason: EndReason) {
        let falls_back = self.falls_back(reason);
        let state = &mut self.state;
        let forks = state.features.forks;
        let run = &mut state.runs[record];
        if falls_back && forks {
            let lost = run.parts[0].at_risk;
            run.left = lost.left.unwrap_or(run.left + lost.work);
        }
        if !falls_back || forks {
            state.lives.of(run.job).remaining = run.left;
        }
        run.generation = run.generation.wrapping_add(1);
        state.free_records.push(record as u32);
        if let Some(uplinks) = &mut state.uplinks {
            uplinks.leave(record as u32);
        }
    }

    /// Removes one of several parts from a run after this part has left its GPUs.
    #[cold]
    fn drop_one_of(&mut self, record: usize, at: usize, reason: EndReason) {
        let falls_back = self.falls_back(reason);
        let run = &mut self.state.runs[record];
        let part = run.parts.remove(at);
        if falls_back {
            run.left += part.at_risk.work;
            for other in &mut run.parts {
                other.at_risk.left = None;
            }
        }
    }

    // These methods change jobs in place.

    /// Lets a part continue on its GPUs with new terms.
    pub(crate) fn keep(&mut self, record: usize, at: usize, terms: &Terms) {
        let state = &mut self.state;
        let run = &mut state.runs[record];
        let job = run.job;
        if let Some(sub_batch) = terms.sub_batch {
            let part = &mut run.parts[at];
            let before = std::mem::replace(&mut part.sub_batch, sub_batch);
            let gpus = part.gpus.clone();
            let (before, after) = (state.bytes_of(job, before), state.bytes_of(job, sub_batch));
            state.occupancy.resize(&gpus, before, after);
            if state.features.resizes {
                state.runs[record].parts[at].accum = terms.accum;
                self.set_base(record); // The new rate is set when the job is re-timed.
            }
        }
        if terms.overhead.is_some() || terms.quota.is_some() {
            self.renew(record, at, terms);
        }
        if self.state.features.shares {
            self.touch(job);
        } else {
            self.retime(record);
        }
    }

    /// Gives a part a new quota, or an overhead that begins now. A new quota also ends the pause of a part that has
    /// used up its old quota.
    #[cold]
    fn renew(&mut self, record: usize, at: usize, terms: &Terms) {
        self.settle(record);
        self.close_segment(record, at, EndReason::Retimed);
        let state = &mut self.state;
        let run = &mut state.runs[record];
        let part = &mut run.parts[at];
        if let Some(overhead) = terms.overhead {
            part.progress_start = state.now + overhead;
            part.at_risk = AtRisk::safe(run.left);
            if let Some(details) = &mut part.details {
                details.at_risk_ns = 0;
            }
            state.lives.of(run.job).remaining = run.left;
            if state.features.starts_quietly {
                self.touch_parts(record);
            }
        }
        let part = &mut self.state.runs[record].parts[at];
        if let Some(quota) = terms.quota {
            part.quota = quota;
        }
        if !part.is_paused() {
            let speed = self.state.speed_now(record, at);
            self.note_sharing(record, at, speed.is_shared);
            self.set_speed(record, at, speed);
        }
        self.reschedule(record);
    }

    /// Updates the uplinks, re-times all affected jobs in the order of job indices, and adds them to `retimed`. The
    /// engine calls this method once per instant.
    pub(crate) fn retime_touched(&mut self, retimed: &mut Vec<JobId>) {
        let first = retimed.len();
        if let Some(uplinks) = &mut self.state.uplinks {
            uplinks.share(retimed);
            for &job in &retimed[first..] {
                self.touch(job);
            }
            retimed.truncate(first);
        }
        let mut touched = std::mem::take(&mut self.state.touched);
        touched.sort_unstable();
        for &job in &touched {
            if let Some(record) = self.state.lives.record(job) {
                self.state.runs[record as usize].is_touched = false;
                self.retime(record as usize);
            }
        }
        retimed.append(&mut touched);
        self.state.touched = touched;
    }

    /// Sets the rates of a job's parts according to their GPUs, co-runners and uplinks. If the rate of a part does not
    /// change, its segment continues.
    fn retime(&mut self, record: usize) {
        let mut is_changed = false;
        for at in 0..self.state.runs[record].parts.len() {
            is_changed |= self.retime_part(record, at);
        }
        if is_changed {
            self.reschedule(record);
        }
    }

    /// Sets the rate of a part. Returns whether the rate has changed.
    fn retime_part(&mut self, record: usize, at: usize) -> bool {
        let speed = self.state.speed_now(record, at);
        self.note_sharing(record, at, speed.is_shared);
        let run = &mut self.state.runs[record];
        let part = &mut run.parts[at];
        let batch = self.state.jobs.batch_size(run.job);
        self.accounts.count_start(part, speed.is_shared, batch);
        let is_moved = speed.locality.to_bits() != part.locality.to_bits();
        let is_same = speed.rate.to_bits() == part.rate.to_bits() && !is_moved;
        if is_same || part.is_paused() {
            (part.xi, part.inflation) = (speed.xi, speed.inflation);
            let is_new = part.segment_start == self.state.now && !part.is_paused();
            let job = run.job;
            if is_new && self.state.phases_of(job).is_some() {
                self.set_speed(record, at, speed);
            }
            return false;
        }
        self.settle(record);
        self.close_segment(record, at, EndReason::Retimed);
        self.set_speed(record, at, speed);
        true
    }

    /// Opens a new segment in which a part has this rate.
    fn set_speed(&mut self, record: usize, at: usize, speed: Speed) {
        let run = &self.state.runs[record];
        let others = if self.state.config.segments && speed.is_shared {
            let partners = self.state.partners(run.job, &run.parts[at].gpus);
            partners.iter().map(|partner| partner.0.0).collect()
        } else {
            Vec::new()
        };
        let part = &mut self.state.runs[record].parts[at];
        (part.locality, part.xi, part.inflation) = (speed.locality, speed.xi, speed.inflation);
        part.rate = speed.rate;
        if let Some(details) = &mut part.details {
            details.co_runners = others;
            details.segment_sub_batch = part.sub_batch;
        }
    }

    /// Marks a running job to be re-timed at the end of the instant.
    fn touch(&mut self, job: JobId) {
        let Some(record) = self.state.lives.record(job) else {
            return;
        };
        let run = &mut self.state.runs[record as usize];
        if !run.is_touched {
            run.is_touched = true;
            self.state.touched.push(job);
        }
    }

    /// Marks all jobs on the GPUs of a run, so that their rates are recomputed.
    fn touch_parts(&mut self, record: usize) {
        for at in 0..self.state.runs[record].parts.len() {
            let gpus = self.state.runs[record].parts[at].gpus.clone();
            self.touch_residents(&gpus);
        }
    }

    /// Marks all jobs on the given GPUs, so that their rates are recomputed.
    fn touch_residents(&mut self, gpus: &GpuSet) {
        for one in gpus.by_server() {
            let held = self.state.occupancy.held_mask(one.server, one.mask);
            // Usually all GPUs of a gang have the same residents.
            let mut last = [NO_JOB; 2];
            let base = self.state.occupancy.gpu(one.server, 0);
            for slot in slots(held) {
                let pair = self.state.occupancy.pair(base + slot as usize);
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
}
