//! Checks a whole plan on an overlay, without touching the state.
//!
//! Releases first, then takes, then sub-batches. The first rule that is broken is the answer; a plan is
//! never partly applied. Cost: O(actions x servers per gang), times a logarithm where GPUs are shared,
//! never O(cluster). What a plan may do: `docs/concepts/simulated-second.md`.

use crate::FreeIndex;
use crate::error::{PlanError, Rule};
use crate::plan::{PlanBuffer, TimerOrder};
use crate::state::{Phase, State, slots};
use gangline_model::{Action, ActionKind, GpuSet, JobId, Part, ServerId, gpus_in};

/// Scratch of the check, reused: free masks of the servers that the plan names.
#[derive(Debug)]
pub(crate) struct Overlay {
    stamp: Vec<u32>,
    free: Vec<u64>,
    epoch: u32,
    jobs: Vec<JobId>,
    takes: Vec<(u32, JobId)>,
    /// Each job with the number of its action, ascending; filled where GPUs are shared or work is limited.
    actions: Vec<(JobId, u32)>,
    residents: Vec<JobId>,
}

/// The actions of a plan by job; a sound plan has at most one each.
#[derive(Clone, Copy)]
struct ByJob<'a> {
    plan: &'a PlanBuffer,
    sorted: &'a [(JobId, u32)],
}

impl<'a> ByJob<'a> {
    fn get(self, job: JobId) -> Option<&'a Action> {
        let found = self.sorted.binary_search_by_key(&job, |entry| entry.0);
        found
            .ok()
            .map(|at| &self.plan.actions[self.sorted[at].1 as usize])
    }

    /// Whether the job leaves the GPUs that it holds.
    fn leaves(self, job: JobId) -> bool {
        let action = self.get(job);
        matches!(action, Some(Action::Preempt { .. } | Action::Move { .. }))
    }

    /// Sub-batch of a job after the plan; 0 = full batch.
    fn sub_batch(self, state: &State, job: JobId) -> u32 {
        match self.get(job) {
            Some(Action::Start { sub_batch, .. }) => sub_batch.unwrap_or(0),
            Some(Action::SetSubBatch { sub_batch, .. }) => *sub_batch,
            Some(Action::Preempt { .. } | Action::Move { .. }) | None => {
                state.run(job).map_or(0, |run| run.sub_batch)
            }
        }
    }
}

/// So many actions are compared each with each: less work than to sort them.
const FEW_ACTIONS: usize = 8;

/// Whether each action is about another job.
#[inline]
fn are_distinct(actions: &[Action]) -> bool {
    let mut earlier = actions;
    while let Some((last, others)) = earlier.split_last() {
        if others.iter().any(|action| action.job() == last.job()) {
            return false;
        }
        earlier = others;
    }
    true
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
            actions: Vec::new(),
            residents: Vec::new(),
        }
    }

    /// Checks the plan against the state; `scratch` is the index as the policy left it.
    #[inline]
    pub(crate) fn check(
        &mut self,
        state: &State,
        plan: &PlanBuffer,
        scratch: &FreeIndex,
        decision: u64,
    ) -> Result<(), PlanError> {
        let is_sound =
            state.max_share == 1 && plan.is_shown_by(scratch) && self.is_sound(state, plan);
        let checked = if is_sound {
            Ok(())
        } else {
            self.find(state, plan)
        };
        checked
            .and_then(|()| check_timers(state, plan))
            .and_then(|()| {
                if plan.limits.is_empty() {
                    return Ok(());
                }
                self.check_limits(state, plan)
            })
            .map_err(|broken| PlanError {
                job: broken.job,
                kind: broken.kind,
                server: broken.server,
                rule: broken.rule,
                time: state.now,
                decision,
            })
    }

    /// Whether a plan is sound whose every action took GPUs that were free on the scratch, or gave back its own. Free
    /// GPUs exist, are on servers that are up and are nobody else's: only jobs, sizes and types are left to check.
    #[inline]
    fn is_sound(&mut self, state: &State, plan: &PlanBuffer) -> bool {
        let is_sound = plan.actions.iter().all(|action| match action {
            Action::Start {
                job,
                gpus,
                sub_batch: None,
            } => state.is_waiting(*job) && is_gang(state, *job, gpus),
            Action::Preempt { job } => state.is_running(*job),
            Action::Start { .. } | Action::Move { .. } | Action::SetSubBatch { .. } => false,
        });
        is_sound && self.check_repeats(plan).is_ok()
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
        Ok(())
    }

    fn check_repeats(&mut self, plan: &PlanBuffer) -> Result<(), Broken> {
        if plan.actions.len() <= FEW_ACTIONS && are_distinct(&plan.actions) {
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

    /// Each limit is above 0 and its job runs after the plan.
    #[cold]
    fn check_limits(&mut self, state: &State, plan: &PlanBuffer) -> Result<(), Broken> {
        self.actions.clear();
        let numbered = plan.actions.iter().zip(0..);
        self.actions
            .extend(numbered.map(|(action, number)| (action.job(), number)));
        self.actions.sort_unstable();
        let by_job = ByJob {
            plan,
            sorted: &self.actions,
        };
        for &(job, work) in &plan.limits {
            if job.index() >= state.jobs.len() {
                return Err(broken(job, ActionKind::Limit, None, Rule::UnknownJob));
            }
            let runs = match by_job.get(job) {
                Some(Action::Preempt { .. }) => false,
                Some(Action::Start { .. } | Action::Move { .. }) => true,
                Some(Action::SetSubBatch { .. }) | None => state.run(job).is_some(),
            };
            if !runs || work.is_nan() || work <= 0.0 {
                return Err(broken(job, ActionKind::Limit, None, Rule::WorkLimit));
            }
        }
        Ok(())
    }

    #[inline]
    fn free_of(&mut self, state: &State, server: ServerId) -> &mut u64 {
        let at = server.index();
        if self.stamp[at] != self.epoch {
            self.stamp[at] = self.epoch;
            self.free[at] = state.servers[at].free;
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
            let Some(known) = state.servers.get(server.index()) else {
                return fail(Rule::NoSuchGpu);
            };
            if mask & !known.full != 0 {
                return fail(Rule::NoSuchGpu);
            }
            if !known.up {
                return fail(Rule::ServerDown);
            }
            let gpu_type = known.gpu_type;
            if usable >> gpu_type.index() & 1 == 0 {
                return fail(Rule::TypeNotAllowed);
            }
            if *first_type.get_or_insert(gpu_type) != gpu_type && !state.mixes_types {
                return fail(Rule::MixedTypes);
            }
            count += gpus_in(mask);
        }
        if count == state.jobs.gpus(job) {
            Ok(())
        } else {
            Err(broken(job, kind, None, Rule::GangSize))
        }
    }

    /// Residents, pairs and memory of every GPU that the plan touches, after the whole plan.
    fn check_sharing(&mut self, state: &State, plan: &PlanBuffer) -> Result<(), Broken> {
        self.takes.clear();
        self.actions.clear();
        for (number, action) in plan.actions.iter().enumerate() {
            self.actions.push((action.job(), number as u32));
            match action {
                Action::Start { job, gpus, .. } | Action::Move { job, gpus } => {
                    self.note_takes(state, *job, gpus);
                }
                Action::SetSubBatch { job, .. } => {
                    let run = state
                        .run(*job)
                        .expect("`check_job` refused jobs that do not run");
                    self.note_takes(state, *job, &run.gpus);
                }
                Action::Preempt { .. } => {}
            }
        }
        self.takes.sort_unstable();
        self.actions.sort_unstable();
        let by_job = ByJob {
            plan,
            sorted: &self.actions,
        };
        let residents = &mut self.residents;
        let mut next = 0;
        for group in self.takes.chunk_by(|a, b| a.0 == b.0) {
            let gpu = group[0].0;
            // groups come in order of GPU, so the server is the same or a later one
            next += state.servers[next..].partition_point(|server| server.gpu_base <= gpu) - 1;
            let server = ServerId::new(next);
            let slot = gpu - state.servers[next].gpu_base;
            residents.clear();
            residents.extend(
                state
                    .residents_of(server, slot)
                    .filter(|&job| !by_job.leaves(job))
                    .chain(group.iter().map(|take| take.1)),
            );
            residents.sort_unstable();
            residents.dedup();
            check_residents(state, by_job, group[0].1, server, residents)?;
        }
        Ok(())
    }

    fn note_takes(&mut self, state: &State, job: JobId, gpus: &GpuSet) {
        for part in gpus.parts() {
            let base = state.servers[part.server.index()].gpu_base;
            self.takes
                .extend(slots(part.mask).map(|slot| (base + slot, job)));
        }
    }
}

/// Whether the set is a gang of the job: its size, of types that it may use, of one type unless the run
/// mixes them. The servers are known to exist.
#[expect(clippy::inline_always, reason = "a part of the check, once per start")]
#[inline(always)]
fn is_gang(state: &State, job: JobId, gpus: &GpuSet) -> bool {
    let usable = state.usable(job);
    let mut count = 0;
    let mut last = None;
    for part in gpus.parts() {
        let gpu_type = state.servers[part.server.index()].gpu_type;
        let is_mixed = last.is_some_and(|last| last != gpu_type);
        if usable >> gpu_type.index() & 1 == 0 || (is_mixed && !state.mixes_types) {
            return false;
        }
        last = Some(gpu_type);
        count += gpus_in(part.mask);
    }
    count == state.jobs.gpus(job)
}

fn check_timers(state: &State, plan: &PlanBuffer) -> Result<(), Broken> {
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
    match state.phase(job) {
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
    by_job: ByJob<'_>,
    taker: JobId,
    server: ServerId,
    residents: &[JobId],
) -> Result<(), Broken> {
    let kind = by_job.get(taker).map_or(ActionKind::Start, Action::kind);
    let fail = |rule| Err(broken(taker, kind, Some(server), rule));
    if residents.len() > state.max_share as usize {
        return fail(Rule::SharingLimit);
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
        .map(|&job| u128::from(state.memory_bytes(job, by_job.sub_batch(state, job))))
        .sum();
    let capacity = state.cluster.gpu_types()[gpu_type.index()].memory_bytes;
    if memory > u128::from(capacity) {
        fail(Rule::Memory)
    } else {
        Ok(())
    }
}
