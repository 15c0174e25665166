//! Reasons why jobs wait: after each decision, the engine asks the policy about the few jobs that a run watches. In a
//! run without watched jobs, this costs one comparison per decision.

use crate::state::State;
use crate::state::jobs::Phase;
use crate::state::running::Run;
use crate::traits::PolicyTraits;
use gangline_model::{JobId, ServerId, SimSpan, SimTime};

/// A reason why jobs wait. A reason is declared next to the policy that returns it. Reports print its sentence.
///
/// A sentence may contain placeholders. `{policy}` is the name of the policy, `{rule}` its placement rule, and `{when}`
/// the time of its decisions. The causes provide the jobs (`{others}` and `{some}`), the instants (`{until}`) and the
/// numbers (`{number}`). `{free}` is the number of free GPUs, and `{meanwhile}` is the same number in brackets.
#[derive(Debug, PartialEq, Eq)]
pub struct Reason {
    /// Name used in tables: one or two words, at most 13 characters.
    pub name: &'static str,
    /// Meaning of the reason, as printed in the guide.
    pub meaning: &'static str,
    /// Sentence that is printed.
    pub sentence: &'static str,
    /// Sentence for causes that lack the job, instant or number that `sentence` mentions, or for which too few GPUs are
    /// free. If this string is empty, `sentence` is printed for these causes too.
    pub otherwise: &'static str,
    /// Unit of the number in the causes.
    pub number: Counted,
    /// Whether the reason ends when enough GPUs are free.
    pub ends_when_free: bool,
}

/// Unit of the number in a cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// There is no number.
    Nothing,
    /// GPUs.
    Gpus,
    /// Parts of the other job.
    Copies,
    /// Jobs.
    Jobs,
    /// Percent.
    Percent,
    /// The widest placement, as a [`Tier`](gangline_model::Tier).
    Tier,
    /// A string that the user's policy provides and stores.
    Words,
}

impl Counted {
    /// Returns the name of the unit.
    pub fn name(self) -> &'static str {
        match self {
            Self::Nothing => "",
            Self::Gpus => "gpus",
            Self::Copies => "copies",
            Self::Jobs => "jobs",
            Self::Percent => "percent",
            Self::Tier => "tier",
            Self::Words => "words",
        }
    }
}

impl Reason {
    /// Creates a reason that has no number and that still holds when enough GPUs are free.
    pub const fn new(name: &'static str, meaning: &'static str, sentence: &'static str) -> Self {
        Self {
            name,
            meaning,
            sentence,
            otherwise: "",
            number: Counted::Nothing,
            ends_when_free: false,
        }
    }

    /// Sets the sentence for causes that lack some facts.
    #[must_use]
    pub const fn otherwise(self, otherwise: &'static str) -> Self {
        Self { otherwise, ..self }
    }

    /// Sets the unit of the number.
    #[must_use]
    pub const fn counts(self, number: Counted) -> Self {
        Self { number, ..self }
    }

    /// Marks a reason that ends when enough GPUs are free.
    #[must_use]
    pub const fn ends_when_free(self) -> Self {
        Self {
            ends_when_free: true,
            ..self
        }
    }
}

/// The policy's reason why a job waits after a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cause {
    /// The reason.
    pub reason: &'static Reason,
    /// The other job that the cause names.
    pub job: Option<JobId>,
    /// A number, in the unit of the reason.
    pub number: Option<u32>,
    /// Instant at which the cause ends; `NEVER` if the instant is unknown.
    pub until: SimTime,
}

impl Cause {
    /// Creates a cause without a job, a number or an instant.
    pub fn new(reason: &'static Reason) -> Self {
        Self {
            reason,
            job: None,
            number: None,
            until: SimTime::NEVER,
        }
    }

    /// Creates a cause that names another job.
    pub fn of(reason: &'static Reason, job: impl Into<Option<JobId>>) -> Self {
        Self {
            job: job.into(),
            ..Self::new(reason)
        }
    }

    /// Adds a number.
    #[must_use]
    pub fn number(self, number: u32) -> Self {
        Self {
            number: Some(number),
            ..self
        }
    }

    /// Adds an instant.
    #[must_use]
    pub fn until(self, until: SimTime) -> Self {
        Self { until, ..self }
    }
}

/// The reason why a watched job waits, and the instant since which the reason applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waited {
    /// Instant from which the cause applies.
    pub since: SimTime,
    /// The watched job.
    pub job: JobId,
    /// The cause; `None` if the policy gives none.
    pub cause: Option<Cause>,
    /// Number of GPUs that the other job held at this instant, if the cause names a running job.
    pub held: Option<u32>,
}

/// Reasons why watched jobs waited, sorted by time: one row for the first decision of each wait, and one row for each
/// change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Causes {
    /// Reasons by time.
    pub rows: Vec<Waited>,
    /// Instants at which a server failed (false) or was repaired (true).
    pub capacity: Vec<(SimTime, ServerId, bool)>,
    /// For each watched job, the mask of the GPU types that it can use, and the minimum number of GPUs on which it can
    /// run.
    pub usable: Vec<(JobId, u64, u32)>,
    /// Whether the policy builds gangs that span several GPU types.
    pub mixes_types: bool,
    /// Length of the policy's rounds.
    pub round: Option<SimSpan>,
}

/// A job that a run watches.
#[derive(Clone, Copy, Debug)]
struct Watched {
    job: JobId,
    /// Whether the policy has been asked since the wait began.
    is_asked: bool,
    cause: Option<Cause>,
}

/// The jobs that a run watches.
#[derive(Clone, Debug)]
pub(crate) struct Watch {
    jobs: Vec<Watched>,
    causes: Causes,
}

impl Watch {
    pub(crate) fn new(jobs: &[JobId]) -> Self {
        Self {
            jobs: jobs
                .iter()
                .map(|&job| Watched {
                    job,
                    is_asked: false,
                    cause: None,
                })
                .collect(),
            causes: Causes::default(),
        }
    }

    /// Returns the recorded causes.
    pub(crate) fn into_causes(self, state: &State, traits: &PolicyTraits) -> Causes {
        let fewest = |job| {
            if traits.forks {
                let servers = (0..state.cluster().servers().len()).map(ServerId::new);
                let of_use = servers.filter(|&server| {
                    let kind = state.cluster().server(server).gpu_type.index();
                    state.types().usable(job) >> kind & 1 == 1
                });
                let copies = of_use.map(|server| state.gang_on(job, server));
                return copies.min().unwrap_or_else(|| state.jobs().gpus(job));
            }
            let elastic = state.elastic_model(job).filter(|_| traits.resizes);
            elastic.map_or(state.jobs().gpus(job), |model| model.class().min_gpus)
        };
        let usable = |one: &Watched| (one.job, state.types().usable(one.job), fewest(one.job));
        Causes {
            usable: self.jobs.iter().map(usable).collect(),
            mixes_types: traits.mixes_types,
            round: traits.round,
            ..self.causes
        }
    }

    /// Asks the policy, after a plan has been applied, why the watched jobs wait.
    #[cold]
    #[inline(never)]
    pub(crate) fn ask(&mut self, state: &State, why: impl Fn(JobId) -> Option<Cause>) {
        for one in &mut self.jobs {
            if state.lives().phase(one.job) != Some(Phase::Waiting) {
                one.is_asked = false;
                continue;
            }
            let cause = why(one.job);
            if !one.is_asked || one.cause != cause {
                let other = cause.and_then(|cause| cause.job);
                self.causes.rows.push(Waited {
                    since: state.now(),
                    job: one.job,
                    cause,
                    held: other.and_then(|other| state.run(other)).map(gpus_of),
                });
            }
            (one.is_asked, one.cause) = (true, cause);
        }
    }

    /// Records that a server failed or was repaired.
    #[cold]
    #[inline(never)]
    pub(crate) fn note_capacity(&mut self, now: SimTime, server: ServerId, up: bool) {
        self.causes.capacity.push((now, server, up));
    }
}

/// Returns the number of GPUs that all parts of a running job hold.
fn gpus_of(run: &Run) -> u32 {
    run.parts().iter().map(|part| part.gpus.gpus()).sum()
}
