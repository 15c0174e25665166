//! Costs of starts, stops and checkpoints for each kind of job, and deviations from the rates that policies know
//! (`docs/concepts/run-time.md`). Only runs with a `[runtime]` table use this module.

use crate::error::EngineError;
use crate::run_time::{Cost, RunTime};
use crate::state::State;
use crate::state::running::{NewPart, Untold};
use crate::structures::bits::slots;
use gangline_model::{GpuSet, GpuTypeId, JobId, SimSpan};

impl State {
    fn run_time(&self) -> &RunTime {
        let table = self.config.run_time.as_ref();
        table.expect("only runs with a [runtime] table call this")
    }

    /// Returns the GPU types in a set of GPUs, as a mask.
    pub(super) fn type_mask(&self, gpus: &GpuSet) -> u64 {
        let bit = |mask, id: GpuTypeId| mask | 1 << id.index();
        self.types_on(gpus).fold(0, bit)
    }

    /// Returns the cost for a gang with this number of GPUs: the largest cost among the given types.
    fn cost(&self, what: Cost, job: JobId, gpus: u32, types: u64) -> SimSpan {
        let (table, model) = (self.run_time(), self.jobs.model(job));
        let of_run = match what {
            Cost::FirstStart => self.config.first_start,
            Cost::Restart => self.restart_of_run(job),
            Cost::Stop => SimSpan::ZERO,
            Cost::Checkpoint => table.checkpoint,
        };
        let on = |id| table.cost(what, model, gpus, GpuTypeId::new(id as usize));
        let costs = slots(types).map(|id| on(id).unwrap_or(of_run));
        costs.max().unwrap_or(SimSpan::ZERO)
    }

    /// Returns the time without progress that a job's next start or move costs, on this number of GPUs of the given
    /// types.
    #[cold]
    pub(super) fn start_cost(&self, job: JobId, gpus: u32, types: u64) -> SimSpan {
        if self.first_start(job).is_none() {
            return self.cost(Cost::FirstStart, job, gpus, types);
        }
        let due = match (self.run(job), &self.stays) {
            (Some(run), _) if !self.features.forks => self.stop_cost(job, run.gpus()),
            (_, Some(stays)) => stays.due(job),
            _ => SimSpan::ZERO,
        };
        self.cost(Cost::Restart, job, gpus, types) + due + self.restart_per_gpus(job)
    }

    fn stop_cost(&self, job: JobId, gpus: &GpuSet) -> SimSpan {
        self.cost(Cost::Stop, job, gpus.gpus(), self.type_mask(gpus))
    }

    /// Returns the cost of a job's longest restart, including the longest stop before it.
    #[cold]
    pub(super) fn longest_restart(&self, job: JobId) -> SimSpan {
        let longest = |what| self.cost(what, job, self.jobs.gpus(job), self.types.usable(job));
        let stop = if self.features.forks {
            SimSpan::ZERO
        } else {
            longest(Cost::Stop)
        };
        longest(Cost::Restart) + stop
    }

    /// Records the time that a stop adds to the next start. A failure is not an orderly stop, so it adds no time.
    #[cold]
    pub(super) fn note_stop(&mut self, record: usize, at: usize, is_failure: bool) {
        let run = &self.runs[record];
        let job = run.job;
        let due = if is_failure || self.features.forks {
            SimSpan::ZERO
        } else {
            self.stop_cost(job, &run.parts[at].gpus)
        };
        if let Some(stays) = &mut self.stays {
            stays.note_stop(job, due);
        }
    }

    /// Counts a start or move of a part. Returns the deviation of the part from the rate that policies know.
    #[cold]
    pub(super) fn begin_stretch(&mut self, job: JobId, new: &NewPart<'_>) -> Untold {
        let part = (job, new.number);
        let stays = self.stays.as_mut();
        let stretch = stays.map_or(0, |stays| stays.begin(part));
        let (gpus, table) = (&*new.gpus, self.run_time());
        let pace = table.pace(self.config.seed, part, stretch, gpus.by_server().len());
        let cost = self.cost(Cost::Checkpoint, job, gpus.gpus(), self.type_mask(gpus));
        match self.config.checkpoint_interval {
            Some(interval) if cost > SimSpan::ZERO => Untold {
                pace,
                works: (interval.0 - cost.0) as f64 / interval.0 as f64,
                saves: cost.0 as f64 / interval.0 as f64,
            },
            _ => Untold {
                pace,
                ..Untold::default()
            },
        }
    }

    /// Rejects checkpoints that take at least as long as the interval between them.
    pub(crate) fn check_checkpoints(&self) -> Result<(), EngineError> {
        let Some(table) = &self.config.run_time else {
            return Ok(());
        };
        let interval = self.config.checkpoint_interval.unwrap_or(SimSpan::ZERO);
        let longest = table.longest_checkpoint();
        if longest == SimSpan::ZERO || longest < interval {
            return Ok(());
        }
        for job in self.jobs.ids().filter(|&job| !self.lives.is_dropped(job)) {
            for gpus in self.sizes_of(job) {
                let cost = self.cost(Cost::Checkpoint, job, gpus, self.types.usable(job));
                if cost > SimSpan::ZERO && cost >= interval {
                    let what = match self.config.checkpoint_interval {
                        None => {
                            "checkpoints that take time need the run option checkpoint_interval_s"
                                .to_owned()
                        }
                        Some(_) => format!(
                            "checkpoints of job {job} on {gpus} GPUs take {} s; expected less than \
                             checkpoint_interval_s = {}",
                            cost.seconds(),
                            interval.seconds()
                        ),
                    };
                    return Err(EngineError::Option {
                        field: "checkpoint_s",
                        what,
                    });
                }
            }
        }
        Ok(())
    }

    /// Returns the numbers of GPUs that a part of a job may have.
    fn sizes_of(&self, job: JobId) -> Vec<u32> {
        let gang = self.jobs.gpus(job);
        if let Some(copy) = self.types.copy_gpus() {
            let servers = self.cluster.servers().iter();
            let mut sizes: Vec<u32> = servers.map(|server| copy.on(server.gpus, gang)).collect();
            sizes.sort_unstable();
            sizes.dedup();
            return sizes;
        }
        match self.elastic_model(job) {
            Some(model) => (model.class().min_gpus..=model.class().max_gpus).collect(),
            None => vec![gang],
        }
    }
}
