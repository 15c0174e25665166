//! Records the GPU time that jobs held and lost, per job and in total (`docs/concepts/metrics.md`). This module never
//! changes a job. Other modules notify it when segments are completed, when jobs start or stop, and when co-runners
//! come or go.
//!
//! A column has one value per job; it is empty if the run does not need it. When a policy asks about a running job, the
//! job's open segment is added to the recorded value.

use crate::config::RunConfig;
use crate::features::Features;
use crate::occupancy::{NO_JOB, Pair};
use crate::state::State;
use crate::state::running::Part;
use crate::structures::bits::slots;
use crate::traits::PolicyTraits;
use gangline_model::{GpuSet, JobId, ServerGpus, ServerId, SimSpan, SimTime};

/// A completed segment of a part. The GPUs, rate and terms of the part were constant from `start` to `end`.
#[derive(Clone, Copy)]
pub(crate) struct Segment<'a> {
    pub(crate) job: JobId,
    pub(crate) part: &'a Part,
    pub(crate) start: SimTime,
    pub(crate) end: SimTime,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Accounts {
    jobs: usize,
    /// Whether the run also records segments that have neither an overhead nor a pause.
    keeps_segments: bool,
    pub(crate) overhead_ns: Vec<i64>,
    pub(crate) comm_s: Vec<f64>,
    /// Run time in seconds lost to locality, by tier.
    pub(crate) comm_tier_s: [Vec<f64>; 3],
    pub(crate) share_ns: Vec<i64>,
    /// Time with progress, in seconds, that was lost to co-runners and sub-batches.
    pub(crate) share_lost_s: Vec<f64>,
    /// For each job, its locality factor, integrated over the time with progress in its completed segments. The unit is
    /// 10^-12 ns.
    kept_ns: Vec<i128>,
    /// Time during which the parts of a job held GPUs, summed over the parts; recorded only for policies that fork
    /// jobs.
    parts_ns: Vec<i64>,
    /// GPU time that the parts of a job held, summed over the parts; recorded for policies that fork jobs, and in runs
    /// in which gangs may change their size.
    pub(crate) gpu_ns: Vec<i128>,
    /// The portion of `gpu_ns` during which the parts made progress; recorded only in runs in which gangs may change
    /// their size.
    attained_ns: Vec<i128>,
    pub(crate) migrations: Vec<i32>,
    pub(crate) preemptions: u64,
    /// GPU time that parts held while they were paused at their quotas.
    pub(crate) paused_gpu_ns: i128,
    /// GPU-seconds that jobs lost, summed part by part because the parts of a job may have different numbers of GPUs.
    pub(crate) lost_by_parts: LostGpuSeconds,
    pub(crate) sharing: SharingTotals,
    /// Useful GPU time; present only in runs in which GPUs may be shared.
    pub(crate) useful: Option<Box<Useful>>,
    /// Totals of lost work and checkpoints; only in runs with a `[runtime]` table.
    pub(crate) run_time: Option<Box<RunTimeTotals>>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct RunTimeTotals {
    /// Time that each job spent on work that was later lost.
    pub(crate) lost_ns: Vec<i64>,
    /// GPU time that all jobs spent on work that was later lost.
    pub(crate) lost_gpu_ns: i128,
    /// Run time in seconds that each job spent on checkpoints.
    pub(crate) checkpoint_s: Vec<f64>,
    /// GPU-seconds that all jobs spent on checkpoints.
    pub(crate) checkpoint_gpu_s: f64,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LostGpuSeconds {
    pub(crate) overhead: f64,
    pub(crate) comm: f64,
    pub(crate) shared: f64,
}

/// Totals for parts with co-runners; recorded only in runs with shared GPUs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SharingTotals {
    /// Time during which parts had a co-runner.
    pub(crate) part_ns: i128,
    /// Time in seconds during which parts had a co-runner, weighted by the slowdown factors of the parts.
    pub(crate) xi_s: f64,
    /// GPU-seconds that the completed work would have needed on the same GPUs at full batch size without co-runners.
    pub(crate) alone_gpu_s: f64,
    /// Number of starts and moves that gave a part a co-runner.
    pub(crate) starts: u64,
    /// Number of starts and moves of parts with less than the full batch size.
    pub(crate) sub_batch_starts: u64,
}

fn column<T: Clone + Default>(is_needed: bool, jobs: usize) -> Vec<T> {
    vec![T::default(); if is_needed { jobs } else { 0 }]
}

impl Accounts {
    pub(crate) fn new(
        config: &RunConfig,
        traits: &PolicyTraits,
        features: Features,
        (jobs, gpus): (usize, usize),
    ) -> Self {
        let Features {
            shares,
            forks,
            resizes,
            has_knots,
            has_distance,
            has_run_time,
            ..
        } = features;
        let watches_locality = traits.watches_locality;
        Self {
            jobs,
            keeps_segments: config.segments
                || (has_distance
                    || shares
                    || watches_locality
                    || forks
                    || has_knots
                    || has_run_time),
            overhead_ns: column(features.starts_cost, jobs),
            comm_s: column(has_distance, jobs),
            comm_tier_s: [(); 3].map(|()| column(has_distance, jobs)),
            share_ns: column(shares, jobs),
            share_lost_s: column(shares, jobs),
            kept_ns: column(watches_locality, jobs),
            parts_ns: column(forks, jobs),
            gpu_ns: column(forks || resizes, jobs),
            attained_ns: column(resizes, jobs),
            useful: shares.then(|| Box::new(Useful::new(gpus))),
            run_time: has_run_time.then(|| {
                Box::new(RunTimeTotals {
                    lost_ns: vec![0; jobs],
                    checkpoint_s: vec![0.0; jobs],
                    ..RunTimeTotals::default()
                })
            }),
            ..Self::default()
        }
    }

    /// Returns whether the run must record the segment of a part that began at `start`.
    #[inline]
    pub(crate) fn keeps(&self, part: &Part, start: SimTime) -> bool {
        self.keeps_segments || part.rate <= 0.0 || part.progress_start > start
    }

    pub(crate) fn add(&mut self, segment: Segment<'_>) {
        let Segment {
            job,
            part,
            start,
            end,
        } = segment;
        let row = job.index();
        let overhead_end = end.min(part.progress_start);
        if overhead_end > start {
            if self.overhead_ns.is_empty() {
                self.overhead_ns.resize(self.jobs, 0);
            }
            self.overhead_ns[row] += (overhead_end - start).0;
        }
        let progress = part.progress(start, end);
        let gpus = part.gpus.gpus();
        #[expect(clippy::float_cmp, reason = "exactly 1 means that nothing is lost")]
        if part.locality != 1.0 && part.rate > 0.0 {
            let lost_s = progress.seconds() * (1.0 - part.locality);
            self.comm_s[row] += lost_s;
            self.comm_tier_s[part.tier as usize][row] += lost_s;
        }
        if let Some(lost_s) = self.share_lost_s.get_mut(row)
            && part.rate > 0.0
        {
            let slowdown = part.inflation * part.xi;
            *lost_s += progress.seconds() * part.locality * (1.0 - 1.0 / slowdown);
            let alone_s = progress.seconds() / slowdown;
            self.sharing.alone_gpu_s += f64::from(gpus) * alone_s;
        }
        if let Some(kept) = self.kept_ns.get_mut(row) {
            *kept += part.kept() * i128::from(progress.0);
        }
        if !self.gpu_ns.is_empty() {
            self.add_part(segment, progress);
        }
        if let (Some(totals), Some(details)) = (&mut self.run_time, &part.details)
            && part.rate > 0.0
        {
            let saving_s = progress.seconds() * details.untold.saves;
            totals.checkpoint_s[row] += saving_s;
            totals.checkpoint_gpu_s += f64::from(gpus) * saving_s;
        }
        if part.rate <= 0.0 {
            self.paused_gpu_ns += i128::from(progress.0) * i128::from(gpus);
        }
    }

    /// Adds the GPU time that a part held and lost during a segment. This is needed only if the parts of a job may have
    /// different numbers of GPUs.
    #[cold]
    fn add_part(&mut self, segment: Segment<'_>, progress: SimSpan) {
        let (row, part) = (segment.job.index(), segment.part);
        let held = segment.end - segment.start;
        let gpus = part.gpus.gpus();
        if let Some(parts_ns) = self.parts_ns.get_mut(row) {
            *parts_ns += held.0;
        }
        self.gpu_ns[row] += i128::from(held.0) * i128::from(gpus);
        if let Some(attained_ns) = self.attained_ns.get_mut(row) {
            *attained_ns += i128::from(progress.0) * i128::from(gpus);
        }
        let (totals, gpus) = (&mut self.lost_by_parts, f64::from(gpus));
        totals.overhead += gpus * SimSpan(held.0 - progress.0).seconds();
        if part.rate > 0.0 {
            let slowdown = part.inflation * part.xi;
            totals.comm += gpus * progress.seconds() * (1.0 - part.locality);
            totals.shared += gpus * progress.seconds() * part.locality * (1.0 - 1.0 / slowdown);
        }
    }

    /// Adds the time that a part spent with a co-runner. The caller must call this method before the slowdown factor of
    /// the part changes.
    pub(crate) fn note_sharing(
        &mut self,
        job: JobId,
        part: &mut Part,
        is_shared: bool,
        now: SimTime,
    ) {
        let Some(details) = &mut part.details else {
            return;
        };
        let next = if is_shared { now } else { SimTime::NEVER };
        let since = std::mem::replace(&mut details.shared_since, next);
        if since < now {
            let span = now - since;
            self.share_ns[job.index()] += span.0;
            self.sharing.part_ns += i128::from(span.0);
            self.sharing.xi_s += part.xi * span.seconds();
        }
    }

    /// Counts the start or move of a part in `starts` if the part has co-runners, and in `sub_batch_starts` if its
    /// sub-batch is smaller than the job's batch.
    pub(crate) fn count_start(&mut self, part: &mut Part, is_shared: bool, batch: u32) {
        let Some(details) = part.details.as_mut().filter(|details| details.is_new) else {
            return;
        };
        details.is_new = false;
        self.sharing.starts += u64::from(is_shared);
        self.sharing.sub_batch_starts += u64::from(part.sub_batch > 0 && part.sub_batch < batch);
    }

    /// Records how much time a part spent on work that it has now lost.
    #[cold]
    pub(crate) fn note_loss(&mut self, job: JobId, part: &Part) {
        if let (Some(totals), Some(details)) = (&mut self.run_time, &part.details) {
            totals.lost_ns[job.index()] += details.at_risk_ns;
            totals.lost_gpu_ns += i128::from(details.at_risk_ns) * i128::from(part.gpus.gpus());
        }
    }

    pub(crate) fn count_migration(&mut self, job: JobId) {
        if self.migrations.is_empty() {
            self.migrations.resize(self.jobs, 0);
        }
        self.migrations[job.index()] += 1;
    }

    /// Adds the useful time of the given GPUs up to now. The caller must call this method before the residents of the
    /// GPUs, or the rates of the residents, change.
    #[inline]
    pub(crate) fn note_useful(&mut self, state: &State, gpus: &GpuSet) {
        if let Some(useful) = &mut self.useful {
            for &one in gpus.by_server() {
                useful.add(state, one);
            }
        }
    }

    /// Returns the time that a job has held GPUs so far, without overhead; for a forked job, this is the sum over its
    /// parts.
    #[inline]
    pub(crate) fn executed(&self, state: &State, job: JobId) -> SimSpan {
        let at = job.index();
        let overhead = self.overhead_ns.get(at).copied().unwrap_or(0);
        let now = state.now();
        let run = state.run(job);
        if state.features().forks {
            let parts = run.map_or(&[][..], |run| run.parts());
            let open = parts.iter().map(|part| part.progress_in_segment(now).0);
            return SimSpan(self.parts_ns[at] - overhead + open.sum::<i64>());
        }
        let closed = state.lives().get(job).map_or(0, |job| job.run_ns) - overhead;
        let open = run.map_or(0, |run| run.only().progress_in_segment(now).0);
        SimSpan(closed + open)
    }

    /// Returns the GPU time of a job so far, without overhead, in GPU-nanoseconds.
    #[inline]
    pub(crate) fn attained_gpu_ns(&self, state: &State, job: JobId) -> i128 {
        if state.features().resizes {
            return self.attained_resized(state, job);
        }
        i128::from(self.executed(state, job).0) * i128::from(state.jobs().gpus(job))
    }

    /// Computes [`Self::attained_gpu_ns`] in runs in which gangs may change their size.
    fn attained_resized(&self, state: &State, job: JobId) -> i128 {
        let open = state.run(job).map_or(0, |run| {
            let part = run.only();
            let progress = part.progress_in_segment(state.now()).0;
            i128::from(progress) * i128::from(part.gpus.gpus())
        });
        self.attained_ns[job.index()] + open
    }

    /// Returns the locality factor of a job, integrated over the job's time with progress so far. The unit is 10^-12
    /// ns.
    pub(crate) fn kept_ns(&self, state: &State, job: JobId) -> i128 {
        let closed = self.kept_ns.get(job.index()).copied().unwrap_or(0);
        let parts = state.run(job).map_or(&[][..], |run| run.parts());
        let open = parts
            .iter()
            .map(|part| part.kept() * i128::from(part.progress_in_segment(state.now()).0));
        closed + open.sum::<i128>()
    }
}

/// Useful GPU time so far. The time of a GPU is weighted by the largest fraction of the base rate that any job on the
/// GPU keeps. A shared GPU is therefore not counted twice.
#[derive(Clone, Debug)]
pub(crate) struct Useful {
    /// For each GPU, the instant up to which its useful time has been counted.
    since: Vec<SimTime>,
    pub(crate) gpu_s: f64,
    /// Time during which GPUs had two residents.
    pub(crate) shared_gpu_ns: i128,
}

impl Useful {
    fn new(gpus: usize) -> Self {
        Self {
            since: vec![SimTime::ZERO; gpus],
            gpu_s: 0.0,
            shared_gpu_ns: 0,
        }
    }

    fn add(&mut self, state: &State, ServerGpus { server, mask }: ServerGpus) {
        // Usually all GPUs of a gang have had the same residents since the same instant.
        let now = state.now();
        let (mut last, mut last_s) = ((now, [NO_JOB; 2]), 0.0);
        let base = state.occupancy().gpu(server, 0);
        for slot in slots(mask) {
            let gpu = base + slot as usize;
            let from = std::mem::replace(&mut self.since[gpu], now);
            if from == now {
                continue;
            }
            let pair = state.occupancy().pair(gpu);
            if (from, pair) != last {
                last_s = useful_s(state, server, pair, from);
                last = (from, pair);
            }
            self.gpu_s += last_s;
            if pair[1] != NO_JOB {
                self.shared_gpu_ns += i128::from((now - from).0);
            }
        }
    }
}

/// Returns the useful time of a GPU since `from`, in seconds (see [`Useful`]).
fn useful_s(state: &State, server: ServerId, pair: Pair, from: SimTime) -> f64 {
    let [mut one, mut other] = pair.map(|job| share_since(state, server, job, from));
    if other.0 < one.0 {
        (one, other) = (other, one);
    }
    (other.0 - one.0).seconds() * one.1 + (state.now() - other.0).seconds() * one.1.max(other.1)
}

/// Returns the first instant at or after `from` at which a resident makes progress, and the fraction of its base rate
/// that this resident keeps.
fn share_since(state: &State, server: ServerId, job: JobId, from: SimTime) -> (SimTime, f64) {
    let now = state.now();
    if job == NO_JOB {
        return (now, 0.0);
    }
    let part = state.run(job).expect("residents run").resident_on(server);
    if part.rate > 0.0 {
        (part.progress_start.max(from).min(now), part.useful())
    } else {
        (now, 0.0)
    }
}
