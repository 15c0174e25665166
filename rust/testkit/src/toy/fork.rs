//! `toy-fork`: first come, first served. Jobs train as several copies while no job waits.

use gangline_engine::{
    Changes, ClusterView, CopyGpus, Next, Part, Plan, Policy, PolicyError, PolicyTraits, WakeOn,
};
use gangline_model::{
    Action, GpuSet, JobId, ServerId, SimSpan, Terms, TimerTag, gpus_in, mask_of_lowest,
};
use std::collections::BTreeMap;

const TAG: TimerTag = TimerTag { kind: 0, id: 0 };

/// Parameters of [`ToyFork`].
#[derive(Clone, Debug)]
pub struct ForkParams {
    /// Maximum number of parts of a job.
    pub copies: usize,
    /// Iteration quota of a part. An additional copy gets the quota when it starts, and every copy gets it again at
    /// each merge.
    pub quota: Option<f64>,
    /// Time for which every copy pauses at a merge.
    pub merge: SimSpan,
    /// Time between two merges.
    pub period: SimSpan,
    /// Whether a part takes all GPUs of its server, even if the job requests fewer.
    pub whole: bool,
}

/// A first-come, first-served queue with forked jobs.
#[derive(Debug)]
pub struct ToyFork {
    params: ForkParams,
}

/// The state that the cluster would have after the actions that are planned so far.
struct Draft<'a> {
    view: &'a ClusterView<'a>,
    free: Vec<u64>,
    /// For each job, the server of each part that the job keeps or gets, by part number.
    parts: BTreeMap<JobId, BTreeMap<u16, ServerId>>,
    waiting: Vec<JobId>,
    preempted: Vec<(JobId, u16)>,
    starts: Vec<Action>,
}

impl<'a> Draft<'a> {
    fn new(view: &'a ClusterView<'a>) -> Self {
        let servers = (0..view.cluster().servers().len()).map(ServerId::new);
        let runs = view.running().filter_map(|job| view.run(job));
        let parts_of = |run: &gangline_engine::Run| {
            let parts = run.parts().iter();
            let parts = parts.map(|part| (part.number, part.gpus.by_server()[0].server));
            (run.job, parts.collect())
        };
        Self {
            free: servers.map(|server| view.free_mask(server)).collect(),
            parts: runs.map(parts_of).collect(),
            waiting: view.waiting().collect(),
            preempted: Vec::new(),
            starts: Vec::new(),
            view,
        }
    }

    fn fits(&self, job: JobId, server: ServerId) -> bool {
        let gpu_type = self.view.cluster().server(server).gpu_type;
        let gpus = self.view.gang_on(job, server);
        self.view.is_up(server)
            && self.view.usable_types(job) >> gpu_type.index() & 1 == 1
            && gpus_in(self.free[server.index()]) >= gpus
            && self.view.copy_rate(job, gpu_type, gpus) > 0.0
    }

    fn first_fit(&self, job: JobId) -> Option<ServerId> {
        let mut servers = (0..self.free.len()).map(ServerId::new);
        let own = self.parts.get(&job);
        let is_own = |server: &ServerId| own.is_some_and(|own| own.values().any(|s| s == server));
        servers.find(|server| self.fits(job, *server) && !is_own(server))
    }

    fn start(&mut self, job: JobId, part: u16, server: ServerId, quota: Option<f64>) {
        let free = &mut self.free[server.index()];
        let mask = mask_of_lowest(*free, self.view.gang_on(job, server));
        *free &= !mask;
        self.parts.entry(job).or_default().insert(part, server);
        let terms = Terms {
            quota,
            ..Terms::default()
        };
        let action = Action::start(job, GpuSet::single(server, mask));
        self.starts.push(action.with(terms).of_part(part));
    }

    /// Starts a waiting job.
    fn admit(&mut self, job: JobId, server: ServerId) {
        self.waiting.retain(|&other| other != job);
        self.start(job, 0, server, None);
    }

    /// Stops additional copies, those of the youngest jobs first, until the blocked job fits on the server of one of
    /// these copies. Returns whether the job fits; if it does not, nothing changes.
    fn reclaim(&mut self, blocked: JobId) -> bool {
        let before = self.preempted.len();
        let victims: Vec<JobId> = self.view.running().collect();
        for &job in victims.iter().rev() {
            while self.parts[&job].len() > 1 {
                let parts = self.parts.get_mut(&job).expect("a running job");
                let (part, server) = parts.pop_last().expect("it has several");
                self.preempted.push((job, part));
                self.free[server.index()] |= self.mask_of(job, part);
                if self.fits(blocked, server) {
                    self.admit(blocked, server);
                    return true;
                }
            }
        }
        for (job, part) in self.preempted.split_off(before) {
            let mask = self.mask_of(job, part);
            let run = self.view.run(job).expect("a running job");
            let gpus = &run.part(part).expect("its part").gpus;
            let server = gpus.by_server()[0].server;
            self.free[server.index()] &= !mask;
            self.parts.entry(job).or_default().insert(part, server);
        }
        false
    }

    fn mask_of(&self, job: JobId, part: u16) -> u64 {
        let run = self.view.run(job).expect("a running job");
        let part = run.part(part).expect("its part");
        part.gpus.by_server()[0].mask
    }

    /// Gives additional copies to running jobs.
    fn spread(&mut self, copies: usize, quota: Option<f64>) {
        let jobs: Vec<JobId> = self.parts.keys().copied().collect();
        for job in jobs {
            while self.parts[&job].len() < copies {
                let Some(server) = self.first_fit(job) else {
                    break;
                };
                let is_used = |number: &u16| {
                    self.parts[&job].contains_key(number)
                        || self.preempted.contains(&(job, *number))
                };
                let number = (0..u16::MAX).find(|number| !is_used(number));
                self.start(job, number.expect("few parts"), server, quota);
            }
        }
    }
}

impl ToyFork {
    /// Creates the policy.
    pub fn new(params: ForkParams) -> Self {
        Self { params }
    }

    /// Gives new terms to the parts of each job that has several parts, or that has one part with a quota.
    fn merges(&self, view: &ClusterView<'_>) -> Vec<Action> {
        if self.params.merge == SimSpan::ZERO && self.params.quota.is_none() {
            return Vec::new();
        }
        let terms = Terms {
            overhead: Some(self.params.merge),
            quota: self.params.quota,
            ..Terms::default()
        };
        let mut merges = Vec::new();
        for run in view.running().filter_map(|job| view.run(job)) {
            let mut numbers: Vec<u16> = run.parts().iter().map(|part| part.number).collect();
            numbers.sort_unstable();
            if numbers.len() > 1 || run.parts().iter().any(Part::has_quota) {
                let keep = |number| Action::keep(run.job, terms).of_part(number);
                merges.extend(numbers.into_iter().map(keep));
            }
        }
        merges
    }
}

impl Policy for ToyFork {
    fn traits(&self) -> PolicyTraits {
        PolicyTraits {
            wake_on: WakeOn::QUEUE | WakeOn::TIMER,
            forks: true,
            copy_gpus: if self.params.whole {
                CopyGpus::Server
            } else {
                CopyGpus::Gang
            },
            ..PolicyTraits::default()
        }
    }

    fn start(
        &mut self,
        view: &ClusterView<'_>,
        _plan: &mut Plan<'_>,
    ) -> Result<Vec<JobId>, PolicyError> {
        let has_server = |job: &JobId| {
            let servers = view.cluster().servers().iter().enumerate();
            servers.into_iter().any(|(index, server)| {
                let is_usable = view.usable_types(*job) >> server.gpu_type.index() & 1 == 1;
                let gpus = view.gang_on(*job, ServerId::new(index));
                let has_rate = view.copy_rate(*job, server.gpu_type, gpus) > 0.0;
                is_usable && server.gpus >= gpus && has_rate
            })
        };
        Ok(view.jobs().ids().filter(|job| !has_server(job)).collect())
    }

    fn decide(
        &mut self,
        view: &ClusterView<'_>,
        _changes: &Changes,
        plan: &mut Plan<'_>,
    ) -> Result<Next, PolicyError> {
        let mut draft = Draft::new(view);
        while let Some(&job) = draft.waiting.first() {
            match draft.first_fit(job) {
                Some(server) => draft.admit(job, server),
                None if draft.reclaim(job) => {}
                None => break,
            }
        }
        if draft.waiting.is_empty() {
            draft.spread(self.params.copies, self.params.quota);
        }
        let mut keeps = self.merges(view);
        keeps.retain(|keep| !draft.preempted.contains(&(keep.job, keep.part)));
        let has_quota = self.params.quota.is_some() && !keeps.is_empty();
        let is_forked = draft.parts.values().any(|parts| parts.len() > 1);
        for &(job, part) in &draft.preempted {
            plan.push(Action::preempt(job).of_part(part));
        }
        for action in keeps.into_iter().chain(draft.starts) {
            plan.push(action);
        }
        if is_forked || has_quota {
            plan.wake_at(view.now() + self.params.period, TAG);
        } else {
            plan.cancel(TAG);
        }
        Ok(Next::Ask)
    }
}
