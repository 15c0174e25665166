//! Checks a whole plan on an overlay, without touching the state (semantics section 5).
//!
//! Releases first, then takes, then sub-batches. The first rule that is broken is the answer; a plan is
//! never partly applied. Cost: O(actions x servers per gang), never O(cluster).

use crate::error::{PlanError, Rule};
use crate::plan::{PlanBuffer, TimerOrder};
use crate::state::{Phase, State, slots};
use gangline_model::{Action, ActionKind, GpuSet, JobId, Part, ServerId};

/// Scratch of the check, reused: free masks of the servers that the plan names.
#[derive(Debug)]
pub(crate) struct Overlay {
    stamp: Vec<u32>,
    free: Vec<u64>,
    epoch: u32,
    jobs: Vec<JobId>,
    takes: Vec<(u32, JobId)>,
}

struct Broken {
    job: JobId,
    kind: ActionKind,
    server: Option<ServerId>,
    rule: Rule,
}

impl Overlay {
    pub(crate) fn new(servers: usize) -> Self {
        Self {
            stamp: vec![0; servers],
            free: vec![0; servers],
            epoch: 0,
            jobs: Vec::new(),
            takes: Vec::new(),
        }
    }

    /// Checks the plan against the state.
    pub(crate) fn check(
        &mut self,
        state: &State,
        plan: &PlanBuffer,
        decision: u64,
    ) -> Result<(), PlanError> {
        self.find(state, plan).map_err(|broken| PlanError {
            job: broken.job,
            kind: broken.kind,
            server: broken.server,
            rule: broken.rule,
            time: state.now,
            decision,
        })
    }

    fn find(&mut self, state: &State, plan: &PlanBuffer) -> Result<(), Broken> {
        self.epoch = self.epoch.wrapping_add(1);
        for action in &plan.actions {
            check_job(state, action)?;
        }
        self.check_repeats(plan)?;
        for action in &plan.actions {
            if let Action::Preempt { job } | Action::Move { job, .. } = action {
                self.release(state, *job);
            }
        }
        for action in &plan.actions {
            if let Action::Start { gpus, .. } | Action::Move { gpus, .. } = action {
                Self::check_set(state, action, gpus)?;
                if state.max_share == 1 {
                    self.take(state, action, gpus)?;
                }
            }
        }
        for action in &plan.actions {
            check_sub_batch(state, action)?;
        }
        if state.max_share > 1 {
            self.check_sharing(state, plan)?;
        }
        for order in &plan.timers {
            if let TimerOrder::Arm(tag, time) = order
                && *time <= state.now
            {
                let job = JobId(tag.id);
                return Err(broken(job, ActionKind::Timer, None, Rule::TimerNotAfterNow));
            }
        }
        Ok(())
    }

    fn check_repeats(&mut self, plan: &PlanBuffer) -> Result<(), Broken> {
        if plan.actions.len() < 2 {
            return Ok(());
        }
        self.jobs.clear();
        self.jobs.extend(plan.actions.iter().map(Action::job));
        if self.jobs.is_sorted_by(|a, b| a < b) {
            return Ok(());
        }
        self.jobs.sort_unstable();
        match self.jobs.windows(2).find(|pair| pair[0] == pair[1]) {
            None => Ok(()),
            Some(pair) => {
                let repeated = plan.actions.iter().rfind(|action| action.job() == pair[0]);
                let kind = repeated.map_or(ActionKind::Start, Action::kind);
                Err(broken(pair[0], kind, None, Rule::TwoActions))
            }
        }
    }

    #[inline]
    fn free_of(&mut self, state: &State, server: ServerId) -> &mut u64 {
        let at = server.index();
        if self.stamp[at] != self.epoch {
            self.stamp[at] = self.epoch;
            self.free[at] = state.free[at];
        }
        &mut self.free[at]
    }

    fn release(&mut self, state: &State, job: JobId) {
        if state.max_share > 1 {
            return; // residents are recounted in check_sharing
        }
        let Some(run) = state.run(job) else { return };
        for part in run.gpus.parts() {
            *self.free_of(state, part.server) |= part.mask;
        }
    }

    #[inline]
    fn take(&mut self, state: &State, action: &Action, gpus: &GpuSet) -> Result<(), Broken> {
        for part in gpus.parts() {
            let free = self.free_of(state, part.server);
            if *free & part.mask != part.mask {
                let (job, kind) = (action.job(), action.kind());
                return Err(broken(job, kind, Some(part.server), Rule::Capacity));
            }
            *free &= !part.mask;
        }
        Ok(())
    }

    fn check_set(state: &State, action: &Action, gpus: &GpuSet) -> Result<(), Broken> {
        let (job, kind) = (action.job(), action.kind());
        let usable = state.usable(job);
        let mut first_type = None;
        let mut count = 0;
        for &Part { server, mask } in gpus.parts() {
            let fail = |rule| Err(broken(job, kind, Some(server), rule));
            if server.index() >= state.free.len() || mask & !state.cluster.full_mask(server) != 0 {
                return fail(Rule::NoSuchGpu);
            }
            if !state.up[server.index()] {
                return fail(Rule::ServerDown);
            }
            let gpu_type = state.cluster.server(server).gpu_type;
            if usable >> gpu_type.index() & 1 == 0 {
                return fail(Rule::TypeNotAllowed);
            }
            if *first_type.get_or_insert(gpu_type) != gpu_type && !state.mixes_types {
                return fail(Rule::MixedTypes);
            }
            count += mask.count_ones();
        }
        if count == state.jobs.gpus(job) {
            Ok(())
        } else {
            Err(broken(job, kind, None, Rule::GangSize))
        }
    }

    /// Residents, pairs and memory of every GPU that the plan touches, after the whole plan.
    fn check_sharing(&mut self, state: &State, plan: &PlanBuffer) -> Result<(), Broken> {
        let leaves = |job: JobId| {
            plan.actions.iter().any(|action| {
                action.job() == job
                    && matches!(action, Action::Preempt { .. } | Action::Move { .. })
            })
        };
        self.takes.clear();
        for action in &plan.actions {
            match action {
                Action::Start { job, gpus, .. } | Action::Move { job, gpus } => {
                    self.note_takes(state, *job, gpus);
                }
                Action::SetSubBatch { job, .. } => {
                    let run = state.run(*job).expect("checked: it runs");
                    self.note_takes(state, *job, &run.gpus.clone());
                }
                Action::Preempt { .. } => {}
            }
        }
        self.takes.sort_unstable();
        for group in self.takes.chunk_by(|a, b| a.0 == b.0) {
            let gpu = group[0].0;
            let server = ServerId::new(state.gpu_base.partition_point(|&base| base <= gpu) - 1);
            let slot = gpu - state.gpu_base[server.index()];
            let mut residents: Vec<JobId> = state
                .residents_of(server, slot)
                .filter(|&job| !leaves(job))
                .chain(group.iter().map(|take| take.1))
                .collect();
            residents.sort_unstable();
            residents.dedup();
            check_residents(state, plan, group[0].1, server, &residents)?;
        }
        Ok(())
    }

    fn note_takes(&mut self, state: &State, job: JobId, gpus: &GpuSet) {
        for part in gpus.parts() {
            let base = state.gpu_base[part.server.index()];
            self.takes
                .extend(slots(part.mask).map(|slot| (base + slot, job)));
        }
    }
}

fn broken(job: JobId, kind: ActionKind, server: Option<ServerId>, rule: Rule) -> Broken {
    Broken {
        job,
        kind,
        server,
        rule,
    }
}

#[inline]
fn check_job(state: &State, action: &Action) -> Result<(), Broken> {
    let (job, kind) = (action.job(), action.kind());
    let fail = |rule| Err(broken(job, kind, None, rule));
    let starts = matches!(action, Action::Start { .. });
    match state.job.get(job.index()).map(|job| job.phase) {
        None => fail(Rule::UnknownJob),
        Some(Phase::Pending) => fail(Rule::NotArrived),
        Some(Phase::Finished | Phase::Dropped) => fail(Rule::FinishedJob),
        Some(Phase::Running) if starts => fail(Rule::AlreadyRunning),
        Some(Phase::Waiting) if !starts => fail(Rule::NotRunning),
        Some(Phase::Running | Phase::Waiting) => Ok(()),
    }
}

#[inline]
fn check_sub_batch(state: &State, action: &Action) -> Result<(), Broken> {
    let (job, sub_batch) = match action {
        Action::Start {
            job,
            sub_batch: Some(sub_batch),
            ..
        }
        | Action::SetSubBatch { job, sub_batch } => (*job, *sub_batch),
        _ => return Ok(()),
    };
    if sub_batch >= 1 && sub_batch <= state.jobs.batch_size(job) {
        Ok(())
    } else {
        Err(broken(job, action.kind(), None, Rule::SubBatch))
    }
}

fn check_residents(
    state: &State,
    plan: &PlanBuffer,
    taker: JobId,
    server: ServerId,
    residents: &[JobId],
) -> Result<(), Broken> {
    let own = plan.actions.iter().find(|action| action.job() == taker);
    let kind = own.map_or(ActionKind::Start, Action::kind);
    let fail = |rule| Err(broken(taker, kind, Some(server), rule));
    if residents.len() > state.max_share as usize {
        return fail(if state.max_share == 1 {
            Rule::Capacity
        } else {
            Rule::SharingLimit
        });
    }
    let gpu_type = state.cluster.server(server).gpu_type;
    for (at, &one) in residents.iter().enumerate() {
        for &other in &residents[at + 1..] {
            if state.pair_xi(one, other, gpu_type).is_none() {
                return fail(Rule::InfeasiblePair);
            }
        }
    }
    let memory: u128 = residents
        .iter()
        .map(|&job| u128::from(state.memory_bytes(job, planned_sub_batch(state, plan, job))))
        .sum();
    let capacity = state.cluster.gpu_types()[gpu_type.index()].memory_bytes;
    if memory > u128::from(capacity) {
        fail(Rule::Memory)
    } else {
        Ok(())
    }
}

/// Sub-batch of a job after the plan; 0 = full batch.
fn planned_sub_batch(state: &State, plan: &PlanBuffer, job: JobId) -> u32 {
    for action in &plan.actions {
        match action {
            Action::Start {
                job: own,
                sub_batch,
                ..
            } if *own == job => return sub_batch.unwrap_or(0),
            Action::SetSubBatch {
                job: own,
                sub_batch,
            } if *own == job => return *sub_batch,
            _ => {}
        }
    }
    state.run(job).map_or(0, |run| run.sub_batch)
}
