//! The `[runtime]` table (`docs/concepts/run-time.md`): the costs of starts, stops and checkpoints for each kind of
//! job, and the deviations of gangs from the rates that policies know.

use gangline_model::{GpuTypeId, JobId, MAX_SECONDS, SimSpan};
use gangline_rng::{Purpose, Stream};
use std::collections::BTreeMap;

/// Maximum sigma of any noise.
const NOISE_MAX: f64 = 2.0;

/// Kinds of costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cost {
    /// The first start of a job.
    FirstStart = 0,
    /// Any later start, or a move.
    Restart = 1,
    /// A stop: a preemption, or leaving the old GPUs in a move. The cost is added to the next start.
    Stop = 2,
    /// A checkpoint.
    Checkpoint = 3,
}

/// Kind of job to which a row of costs applies: model label, number of GPUs and GPU type. `None` means all.
pub type Kind = (Option<u32>, Option<u32>, Option<GpuTypeId>);

/// Costs for one kind of job, indexed by [`Cost`]; `None` means that a row of lower precedence applies.
pub type Costs = [Option<SimSpan>; 4];

/// The deviations of the jobs' actual rates from those that policies know, and the costs for each kind of job.
#[derive(Clone, Debug, Default)]
pub struct RunTime {
    /// Sigma of the noise that applies to a job as a whole.
    pub job_noise: f64,
    /// Sigma of the noise that applies to each stretch. A stretch is the time from one start or move to the next.
    pub run_noise: f64,
    /// Sigma of the noise for each of a gang's servers except the first.
    pub straggler_noise: f64,
    /// Time that a checkpoint takes, for jobs to which no row with this cost applies.
    pub checkpoint: SimSpan,
    /// Costs for each kind.
    pub costs: BTreeMap<Kind, Costs>,
}

impl RunTime {
    /// Returns the cost for a gang on GPUs of a type, if a row contains this cost. Rows that name the model take
    /// precedence over rows that name the number of GPUs, and these over rows that name the type.
    pub(crate) fn cost(
        &self,
        what: Cost,
        model: Option<u32>,
        gpus: u32,
        gpu_type: GpuTypeId,
    ) -> Option<SimSpan> {
        let named = [true, false];
        let mut kinds = named.into_iter().flat_map(|by_model| {
            named.into_iter().flat_map(move |by_gpus| {
                named.into_iter().map(move |by_type| {
                    (
                        model.filter(|_| by_model),
                        by_gpus.then_some(gpus),
                        by_type.then_some(gpu_type),
                    )
                })
            })
        });
        kinds.find_map(|kind| self.costs.get(&kind)?[what as usize])
    }

    /// Returns the time that the longest checkpoint takes, over all kinds of jobs.
    pub(crate) fn longest_checkpoint(&self) -> SimSpan {
        let rows = self.costs.values();
        let of_rows = rows.filter_map(|row| row[Cost::Checkpoint as usize]).max();
        of_rows.map_or(self.checkpoint, |longest| longest.max(self.checkpoint))
    }

    /// Returns a description of the first invalid value, or `None` if all values are valid.
    pub(crate) fn problem(&self) -> Option<String> {
        let sigmas = [self.job_noise, self.run_noise, self.straggler_noise];
        if !sigmas.iter().all(|sigma| (0.0..=NOISE_MAX).contains(sigma)) {
            return Some(format!("noise must be from 0 to {NOISE_MAX}"));
        }
        let is_span = |span: &SimSpan| span.0 >= 0 && span.seconds() <= MAX_SECONDS;
        let mut spans = self.costs.values().flatten().flatten();
        let is_sound = is_span(&self.checkpoint) && spans.all(is_span);
        (!is_sound).then(|| "costs must be from 0 to 4e9 s".to_owned())
    }

    /// Returns the ratio of the time that a stretch takes to the time that policies expect. `stretch` is the number of
    /// the stretch, counted separately for each part, and `servers` is the number of servers that the part uses.
    pub(crate) fn pace(
        &self,
        seed: u64,
        (job, part): (JobId, u16),
        stretch: u32,
        servers: usize,
    ) -> f64 {
        let id = u64::from(job.0);
        let mut pace = 1.0;
        if self.job_noise > 0.0 {
            let whole = Stream::new(seed, Purpose::JobPace).draw(id, 0, 0);
            pace = whole.log_normal(self.job_noise);
        }
        if self.run_noise > 0.0 {
            let own = Stream::new(seed, Purpose::RunPace).draw(id, stretch, u32::from(part));
            pace *= own.log_normal(self.run_noise);
        }
        if self.straggler_noise > 0.0 {
            let stream = Stream::new(seed, Purpose::Stragglers);
            let further = 1..servers as u32;
            // The log-normal quantile increases with the integer, so the largest integer gives the slowest server.
            let slowest = further
                .map(|server| stream.draw(id, stretch, server))
                .max_by_key(|draw| draw.uniform_u64());
            pace *= slowest.map_or(1.0, |draw| draw.log_normal_from_one(self.straggler_noise));
        }
        pace
    }
}

/// Number of starts and moves of each part so far, and the time that each job's last stop adds to its next start.
#[derive(Clone, Debug)]
pub(crate) struct Stays {
    stretches: BTreeMap<(JobId, u16), u32>,
    due: Vec<SimSpan>,
}

impl Stays {
    pub(crate) fn new(jobs: usize) -> Self {
        Self {
            stretches: BTreeMap::new(),
            due: vec![SimSpan::ZERO; jobs],
        }
    }

    /// Counts a start or move of a part. Returns the number of its earlier starts and moves.
    pub(crate) fn begin(&mut self, part: (JobId, u16)) -> u32 {
        let count = self.stretches.entry(part).or_insert(0);
        *count += 1;
        *count - 1
    }

    pub(crate) fn note_stop(&mut self, job: JobId, due: SimSpan) {
        self.due[job.index()] = due;
    }

    pub(crate) fn due(&self, job: JobId) -> SimSpan {
        self.due[job.index()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODEL: u32 = 7;

    fn span(seconds: i64) -> SimSpan {
        SimSpan(seconds * 1_000_000_000)
    }

    fn table(rows: &[(Kind, i64)]) -> RunTime {
        let row = |&(kind, seconds): &(Kind, i64)| (kind, [None, Some(span(seconds)), None, None]);
        RunTime {
            costs: rows.iter().map(row).collect(),
            ..RunTime::default()
        }
    }

    #[test]
    fn the_model_goes_before_the_gang_and_the_gang_before_the_type() {
        let first = GpuTypeId::new(0);
        let rows = table(&[
            ((None, None, None), 1),
            ((None, None, Some(first)), 2),
            ((None, Some(4), None), 3),
            ((Some(MODEL), None, None), 4),
            ((Some(MODEL), Some(8), None), 5),
        ]);
        let restart = |model, gpus, id| rows.cost(Cost::Restart, model, gpus, GpuTypeId::new(id));
        assert_eq!(restart(None, 1, 1), Some(span(1)));
        assert_eq!(restart(None, 1, 0), Some(span(2)));
        assert_eq!(restart(Some(MODEL + 1), 4, 0), Some(span(3)));
        assert_eq!(restart(Some(MODEL), 4, 0), Some(span(4)));
        assert_eq!(restart(Some(MODEL), 8, 0), Some(span(5)));
        assert_eq!(rows.cost(Cost::Stop, Some(MODEL), 8, first), None);
    }

    #[test]
    fn noise_and_costs_out_of_range_are_named() {
        assert_eq!(table(&[((None, None, None), 3)]).problem(), None);
        assert!(table(&[((None, None, None), -1)]).problem().is_some());
        for sigma in [-0.1, 2.1, f64::NAN] {
            let noisy = RunTime {
                run_noise: sigma,
                ..RunTime::default()
            };
            assert!(noisy.problem().is_some());
        }
    }

    #[test]
    fn one_server_has_no_stragglers_and_more_of_them_are_no_faster() {
        let table = RunTime {
            straggler_noise: 0.5,
            ..RunTime::default()
        };
        let mut before = 1.0;
        for servers in 1..20 {
            let pace = table.pace(3, (JobId(0), 0), 0, servers);
            assert!(servers > 1 || pace.to_bits() == 1.0_f64.to_bits());
            assert!(pace >= before);
            before = pace;
        }
        assert!(before > 1.0);
    }
}
