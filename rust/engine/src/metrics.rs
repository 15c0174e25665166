//! The summary of a run (`docs/concepts/metrics.md`): quantiles, utilisation and fairness. The summary is computed
//! once, in O(jobs).

use crate::accounts::{Accounts, SharingTotals};
use crate::error::EngineError;
use crate::run::{Engine, Outcome};
use crate::segments::Segments;
use crate::state::jobs::{JobState, NOT_YET, Phase};
use crate::timeline::Timeline;
use crate::traits::CopyGpus;
use crate::watch::Causes;
use gangline_model::{Infeasible, JobId, NANOS_PER_SECOND, SimTime, span_of_work};

/// All results of a run.
#[derive(Clone, Debug, Default)]
pub struct Output {
    /// Time of the first start, in seconds; NaN if the job never started.
    pub first_start_s: Vec<f64>,
    /// Time of the finish, in seconds; NaN if the job did not finish.
    pub finish_s: Vec<f64>,
    /// Completion time in seconds, which is finish - arrival; NaN if the job did not finish.
    pub jct_s: Vec<f64>,
    /// Time in seconds from the arrival to the first start; NaN if the job never started.
    pub queue_s: Vec<f64>,
    /// Time in seconds without GPUs between the arrival and the finish; NaN if the job did not finish.
    pub wait_s: Vec<f64>,
    /// Time in seconds with GPUs.
    pub run_s: Vec<f64>,
    /// Time in seconds with GPUs but without progress; empty means 0 for every job.
    pub overhead_s: Vec<f64>,
    /// Run time in seconds lost to locality; empty means 0 for every job.
    pub comm_s: Vec<f64>,
    /// Run time in seconds lost to locality, by tier: server, rack, network.
    pub comm_tier_s: [Vec<f64>; 3],
    /// Run time in seconds with a co-runner; empty means 0 for every job.
    pub share_s: Vec<f64>,
    /// Run time in seconds lost to co-runners and sub-batches; empty means 0 for every job.
    pub share_lost_s: Vec<f64>,
    /// Run time in seconds spent on work that was later lost; empty in a run without a `[runtime]` table.
    pub lost_s: Vec<f64>,
    /// Run time in seconds that checkpoints took; empty in a run without a `[runtime]` table.
    pub checkpoint_s: Vec<f64>,
    /// GPU time in seconds that the parts of the job held, summed over the parts; empty means GPUs x `run_s` for every
    /// job.
    pub gpu_s: Vec<f64>,
    /// Completion time divided by the isolated run time; NaN if the job did not finish.
    pub slowdown: Vec<f64>,
    /// Finish-time fairness; NaN if the job did not finish.
    pub ftf: Vec<f64>,
    /// Number of preemptions; empty means 0 for every job.
    pub preemptions: Vec<i32>,
    /// Number of migrations; empty means 0 for every job.
    pub migrations: Vec<i32>,
    /// Status: 0 finished, 1 dropped, 2 unfinished.
    pub status: Vec<u8>,
    /// Jobs that the run left out, each with the reason.
    pub dropped: Vec<Infeasible>,
    /// The segments table, if requested.
    pub segments: Option<Segments>,
    /// Reasons why watched jobs waited; `None` in a run that watches none.
    pub causes: Option<Causes>,
    /// The timeline table.
    pub timeline: Timeline,
    /// Summary keys and values, in a fixed order (`docs/reference/columns.md`).
    pub summary: Vec<(&'static str, f64)>,
    /// Rule for the number of GPUs of each part of a forked job.
    pub copy_gpus: CopyGpus,
    /// Hash of the event log.
    pub log_hash: u64,
    /// Outcome of the run.
    pub outcome: Option<Outcome>,
}

/// The summary key whose value only the policy knows.
const SHARES_REFUSED: &str = "shares_refused";

impl Output {
    /// Copies the policy's counter `shares_refused` to the summary. This is the number of arrived jobs that waited
    /// although they could have shared GPUs.
    pub fn note_counters(&mut self, counters: &[(&'static str, u64)]) {
        let counted = counters.iter().find(|entry| entry.0 == SHARES_REFUSED);
        let known = self
            .summary
            .iter_mut()
            .find(|entry| entry.0 == SHARES_REFUSED);
        if let (Some(&(_, count)), Some(entry)) = (counted, known) {
            entry.1 = count as f64;
        }
    }
}

impl Engine {
    /// Returns the results. Columns of jobs are in the order of job indices.
    ///
    /// # Errors
    /// Returns [`EngineError::OutOfMemory`] if the tables of an interrupted run cannot be sorted.
    pub fn output(mut self) -> Result<Output, EngineError> {
        let outcome = self.outcome;
        let copy_gpus = self.motion.state.types().copy_gpus().unwrap_or_default();
        // Jobs that still run count as holding their GPUs up to now.
        self.close(Outcome::Interrupted);
        self.motion.recorder.check_memory(self.motion.state.now())?;
        let rows = self.motion.state.jobs().len();
        let mut accounts = std::mem::take(&mut self.motion.accounts);
        let (state, dropped) = self.motion.state.take_lives();
        let seconds = |ns: i64| ns as f64 / NANOS_PER_SECOND;
        let or_nan = |time: SimTime, none: SimTime| {
            if time == none {
                f64::NAN
            } else {
                time.seconds()
            }
        };
        let column = |ns: &[i64]| ns.iter().map(|&ns| seconds(ns)).collect();
        let mut status: Vec<u8> = state.iter().map(status_of).collect();
        for entry in &dropped {
            status[entry.job.index()] = 1;
        }
        let mut output = Output {
            status,
            copy_gpus,
            first_start_s: state
                .iter()
                .map(|job| or_nan(job.first_start, NOT_YET))
                .collect(),
            finish_s: state
                .iter()
                .map(|job| or_nan(job.finish, SimTime::NEVER))
                .collect(),
            jct_s: Vec::with_capacity(rows),
            queue_s: Vec::with_capacity(rows),
            wait_s: Vec::with_capacity(rows),
            run_s: state.iter().map(|job| seconds(job.run_ns)).collect(),
            overhead_s: column(&accounts.overhead_ns),
            comm_s: std::mem::take(&mut accounts.comm_s),
            comm_tier_s: std::mem::take(&mut accounts.comm_tier_s),
            share_s: column(&accounts.share_ns),
            share_lost_s: std::mem::take(&mut accounts.share_lost_s),
            lost_s: accounts
                .run_time
                .as_ref()
                .map_or_else(Vec::new, |totals| column(&totals.lost_ns)),
            checkpoint_s: accounts
                .run_time
                .as_mut()
                .map_or_else(Vec::new, |totals| std::mem::take(&mut totals.checkpoint_s)),
            gpu_s: accounts
                .gpu_ns
                .iter()
                .map(|&ns| ns as f64 / NANOS_PER_SECOND)
                .collect(),
            preemptions: if accounts.preemptions == 0 {
                Vec::new()
            } else {
                state.iter().map(|job| job.preemptions as i32).collect()
            },
            migrations: std::mem::take(&mut accounts.migrations),
            ftf: Vec::with_capacity(rows),
            slowdown: Vec::with_capacity(rows),
            dropped,
            segments: self.motion.recorder.segments.take(),
            causes: self
                .watch
                .take()
                .map(|watch| watch.into_causes(&self.motion.state, &self.traits)),
            timeline: self.motion.recorder.take_timeline(),
            summary: Vec::new(),
            log_hash: self.motion.recorder.hash.0,
            outcome,
        };
        let active_ns: Vec<f64> = state.iter().map(|job| job.active_ns() as f64).collect();
        drop(state); // The largest columns are freed before the last ones are created.
        self.times(&mut output);
        self.fairness(&mut output, &active_ns);
        output.summary = self.summary(&output, &accounts);
        Ok(output)
    }

    /// Returns the time in seconds from the arrival of a job to an instant.
    fn since_arrival(&self, job: JobId, at_s: f64) -> f64 {
        at_s - self.motion.state.jobs().arrival(job).seconds()
    }

    /// Computes completion times and their components, rounded to the nanosecond to remove floating-point noise.
    fn times(&self, output: &mut Output) {
        for job in self.motion.state.jobs().ids() {
            let at = job.index();
            let jct = to_nanos(self.since_arrival(job, output.finish_s[at]));
            let queue = to_nanos(self.since_arrival(job, output.first_start_s[at]));
            let wait = to_nanos(jct - output.run_s[at]);
            output.jct_s.push(jct);
            output.queue_s.push(queue);
            output.wait_s.push(if wait <= 0.0 { 0.0 } else { wait });
        }
    }

    /// Computes two ratios for each job: its slowdown relative to the isolated run, and rho, which is its JCT divided
    /// by the time that it would need alone on 1/n of the cluster. For each job, `active_ns` contains the number of
    /// active jobs, integrated over the life of this job.
    fn fairness(&self, output: &mut Output, active_ns: &[f64]) {
        let state = &self.motion.state;
        let total = f64::from(state.cluster().gpus_total());
        for job in state.jobs().ids() {
            let at = job.index();
            let best_rate = state.types().best_rate(job);
            // A job without a best rate ran as copies on GPUs where the gang itself cannot run.
            if output.status[at] != 0 || best_rate <= 0.0 {
                output.ftf.push(f64::NAN);
                output.slowdown.push(f64::NAN);
                continue;
            }
            let isolated = span_of_work(state.jobs().work(job), best_rate).seconds();
            let jct = self.since_arrival(job, output.finish_s[at]);
            let active = active_ns[at] / (jct * NANOS_PER_SECOND);
            let share = f64::from(state.jobs().gpus(job)) * active / total;
            output.slowdown.push(jct / isolated);
            output.ftf.push(jct / (isolated * share.max(1.0)));
        }
    }

    /// Returns the jobs that the summary's metrics include, in index order.
    fn counted(&self) -> impl Iterator<Item = JobId> {
        let (jobs, window) = (
            self.motion.state.jobs(),
            &self.motion.state.config().count_arrivals,
        );
        let is_counted = move |&job: &JobId| {
            let window = window.as_ref();
            window.is_none_or(|window| window.contains(&jobs.arrival(job)))
        };
        jobs.ids().filter(is_counted)
    }

    fn summary(&mut self, output: &Output, accounts: &Accounts) -> Vec<(&'static str, f64)> {
        let jobs = self.motion.state.jobs();
        let done = |job: &JobId| output.status[job.index()] == 0;
        let each = |value: &dyn Fn(JobId) -> f64| -> Vec<f64> {
            self.counted().filter(done).map(value).collect()
        };
        let sum = |column: &[i32]| {
            let known = self.counted().filter_map(|job| column.get(job.index()));
            known.map(|&count| i64::from(count)).sum::<i64>() as f64
        };
        let arrival = |job: JobId| jobs.arrival(job).seconds();
        // Only one column is in memory at a time, because each is as long as the trace.
        let jct = |job: JobId| self.since_arrival(job, output.finish_s[job.index()]);
        let queue = |job: JobId| self.since_arrival(job, output.first_start_s[job.index()]);
        let (jct_mean, jct) = statistics(each(&jct), [0.5, 0.9, 0.95, 0.99, 1.0]);
        let (queue_mean, [queue_p99]) = statistics(each(&queue), [0.99]);
        let (ftf_mean, ftf) = statistics(each(&|job| output.ftf[job.index()]), [0.99, 1.0]);
        let (wait_mean, []) = statistics(each(&|job| output.wait_s[job.index()]), []);
        let (preemptions, migrations) = (sum(&output.preemptions), sum(&output.migrations));
        let of_status = |status| {
            let alike = |job: &JobId| output.status[job.index()] == status;
            self.counted().filter(alike).count() as f64
        };
        let (count, finished, dropped) = (self.counted().count(), of_status(0), of_status(1));
        let first = jobs
            .ids()
            .filter(|job| output.status[job.index()] != 1)
            .map(arrival)
            .next();
        let last = output.finish_s.iter().copied().fold(f64::NAN, f64::max);
        let makespan = first.map_or(f64::NAN, |first| to_nanos(last - first));
        // If the run was stopped, GPUs were busy after the last finish, so the length includes the time up to now.
        let until = self.motion.state.now().seconds();
        let length_s = first.map_or(f64::NAN, |first| to_nanos(until - first));
        let shares = self.shares(output, accounts, length_s);
        let nanos = &mut self.decision_nanos;
        nanos.sort_unstable();
        let decision = |share: f64| {
            let at = ((nanos.len() as f64 * share) as usize).min(nanos.len().saturating_sub(1));
            nanos.get(at).map_or(0.0, |&nanos| f64::from(nanos) / 1e3)
        };
        let longest = nanos.last().map_or(0.0, |&nanos| f64::from(nanos) / 1e3);
        let totals = &self.motion.recorder.totals;
        let mut summary = vec![
            ("jobs", count as f64),
            ("finished", finished),
            ("dropped", dropped),
            ("makespan_s", makespan),
            ("jct_mean_s", jct_mean),
            ("jct_p50_s", jct[0]),
            ("jct_p90_s", jct[1]),
            ("jct_p95_s", jct[2]),
            ("jct_p99_s", jct[3]),
            ("jct_max_s", jct[4]),
            ("queue_mean_s", queue_mean),
            ("queue_p99_s", queue_p99),
            ("wait_mean_s", wait_mean),
            ("gpu_utilization", shares.busy),
            ("useful_utilization", shares.useful),
            ("node_utilization", shares.servers),
            ("ftf_mean", ftf_mean),
            ("ftf_p99", ftf[0]),
            ("ftf_max", ftf[1]),
            ("preemptions", preemptions),
            ("migrations", migrations),
            ("comm_fraction", shares.comm),
            ("overhead_fraction", shares.overhead),
            ("share_fraction", shares.shared),
            ("fragmentation", shares.fragmentation),
            ("gpu_hours", shares.gpu_hours),
            ("decisions", self.decisions as f64),
            ("decision_p50_us", decision(0.5)),
            ("decision_p99_us", decision(0.99)),
            ("decision_max_us", longest),
            ("events", self.events as f64),
            ("failures", totals.failures as f64),
        ];
        summary.extend(self.cost().map(|cost| ("cost", cost)));
        summary.extend(self.deadlines(output).into_iter().flatten());
        summary.extend(self.sharing(accounts).into_iter().flatten());
        summary.extend(lost_and_saved(accounts, shares.gpu_hours));
        summary
    }

    /// Returns the totals for co-runners; `None` where GPUs are not shared. The policy itself reports the number of
    /// refused shares through [`Output::note_counters`].
    fn sharing(&self, accounts: &Accounts) -> Option<[(&'static str, f64); 6]> {
        let useful = accounts.useful.as_ref()?;
        let seconds = |ns: i128| ns as f64 / NANOS_PER_SECOND;
        let busy = seconds(self.motion.recorder.totals.busy_gpu_ns);
        let SharingTotals {
            part_ns,
            xi_s,
            alone_gpu_s,
            starts,
            sub_batch_starts,
        } = accounts.sharing;
        Some([
            ("share_gpu_fraction", seconds(useful.shared_gpu_ns) / busy),
            ("xi_mean", xi_s / seconds(part_ns)),
            ("packing_gain", alone_gpu_s / busy),
            ("shares_started", starts as f64),
            (SHARES_REFUSED, 0.0),
            ("sub_batch_starts", sub_batch_starts as f64),
        ])
    }

    /// Returns the cost of the busy GPU time at the hourly prices of the GPU types; `None` if no GPU has a price.
    fn cost(&self) -> Option<f64> {
        let busy = &self.motion.recorder.totals.busy_by_type_ns;
        let types = self.motion.state.cluster().gpu_types().iter().zip(busy);
        (!busy.is_empty()).then(|| {
            let hours = |ns: i128| ns as f64 / NANOS_PER_SECOND / 3600.0;
            types.map(|(t, &ns)| t.price_per_hour * hours(ns)).sum()
        })
    }

    /// Returns the number of jobs with a deadline and the number of jobs that met their deadline; `None` if the trace
    /// has no deadlines.
    fn deadlines(&self, output: &Output) -> Option<[(&'static str, f64); 2]> {
        let column = self.motion.state.jobs().columns().deadline.as_ref()?;
        let (mut all, mut met) = (0_u32, 0_u32);
        for job in self.counted() {
            let deadline = column[job.index()];
            if deadline != SimTime::NEVER {
                all += 1;
                // A job that did not finish has NaN, which meets no deadline.
                met += u32::from(output.finish_s[job.index()] <= deadline.seconds());
            }
        }
        Some([
            ("deadlines", f64::from(all)),
            ("deadlines_met", f64::from(met)),
        ])
    }

    /// Returns the utilisation of the cluster, time-weighted between the first arrival and the end of the run, and the
    /// shares of GPU time that were lost. The run ends at the last finish unless it was stopped.
    fn shares(&self, output: &Output, accounts: &Accounts, length_s: f64) -> Shares {
        let totals = &self.motion.recorder.totals;
        let seconds = |ns: i128| ns as f64 / NANOS_PER_SECOND;
        let (mut held, mut overhead, mut comm, mut shared) = (0.0, 0.0, 0.0, 0.0);
        for job in self.motion.state.jobs().ids() {
            let (at, gpus) = (job.index(), f64::from(self.motion.state.jobs().gpus(job)));
            held += gpus * output.run_s[at];
            overhead += gpus * output.overhead_s.get(at).copied().unwrap_or(0.0);
            comm += gpus * output.comm_s.get(at).copied().unwrap_or(0.0);
            shared += gpus * output.share_lost_s.get(at).copied().unwrap_or(0.0);
        }
        if !output.gpu_s.is_empty() {
            let lost = &accounts.lost_by_parts;
            held = output.gpu_s.iter().sum();
            (overhead, comm, shared) = (lost.overhead, lost.comm, lost.shared);
        }
        let useful = match &accounts.useful {
            Some(useful) => useful.gpu_s,
            None => held - overhead - comm - seconds(accounts.paused_gpu_ns),
        };
        let length_s = if length_s > 0.0 { length_s } else { f64::NAN };
        let gpu_seconds = f64::from(self.motion.state.cluster().gpus_total()) * length_s;
        let server_seconds = self.motion.state.cluster().servers().len() as f64 * length_s;
        let of_held = |value: f64| if held > 0.0 { value / held } else { 0.0 };
        Shares {
            busy: seconds(totals.busy_gpu_ns) / gpu_seconds,
            useful: useful / gpu_seconds,
            servers: seconds(totals.busy_server_ns) / server_seconds,
            overhead: of_held(overhead),
            comm: of_held(comm),
            shared: of_held(shared),
            fragmentation: seconds(totals.fragmented_gpu_ns) / gpu_seconds,
            gpu_hours: held / 3600.0,
        }
    }
}

/// Returns the costs of lost work and of checkpoints, as shares of the GPU time that jobs held. The list is empty in a
/// run without a `[runtime]` table.
fn lost_and_saved(accounts: &Accounts, held_h: f64) -> Vec<(&'static str, f64)> {
    let Some(totals) = &accounts.run_time else {
        return Vec::new();
    };
    let of_held = |gpu_s: f64| {
        if held_h > 0.0 {
            gpu_s / 3600.0 / held_h
        } else {
            0.0
        }
    };
    let lost = totals.lost_gpu_ns as f64 / NANOS_PER_SECOND;
    vec![
        ("lost_fraction", of_held(lost)),
        ("checkpoint_fraction", of_held(totals.checkpoint_gpu_s)),
    ]
}

/// Returns the status of a job in the results: 0 finished, 1 dropped, 2 unfinished.
fn status_of(job: &JobState) -> u8 {
    match job.phase() {
        Phase::Finished => 0,
        Phase::Dropped => 1,
        Phase::Pending | Phase::Waiting | Phase::Running => 2,
    }
}

struct Shares {
    busy: f64,
    useful: f64,
    servers: f64,
    overhead: f64,
    comm: f64,
    shared: f64,
    fragmentation: f64,
    gpu_hours: f64,
}

/// Returns the difference between two times, rounded to the nanosecond, because both times are multiples of a
/// nanosecond.
fn to_nanos(seconds: f64) -> f64 {
    (seconds * NANOS_PER_SECOND).round_ties_even() / NANOS_PER_SECOND
}

/// Returns the arithmetic mean, summed in index order, and quantiles; all are NaN if there are no values.
fn statistics<const N: usize>(mut values: Vec<f64>, shares: [f64; N]) -> (f64, [f64; N]) {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    (mean, shares.map(|share| quantile(&mut values, share)))
}

/// Returns the quantile by linear interpolation between order statistics; NaN if there are no values. The function
/// reorders `values`.
///
/// # Examples
/// ```
/// let mut values = vec![4.0, 1.0, 3.0, 2.0];
/// assert_eq!(gangline_engine::quantile(&mut values, 0.5), 2.5);
/// ```
pub fn quantile(values: &mut [f64], share: f64) -> f64 {
    if values.is_empty() {
        return f64::NAN;
    }
    let position = share * (values.len() - 1) as f64;
    let below = position as usize;
    let (_, low, above) = values.select_nth_unstable_by(below, f64::total_cmp);
    let low = *low;
    let high = above.iter().copied().min_by(f64::total_cmp).unwrap_or(low);
    low + (high - low) * (position - below as f64)
}
