//! Checks a whole plan on an overlay, without changing the state.
//!
//! Jobs and terms are checked first. The GPUs that the plan releases are then marked as free in the overlay, and
//! finally the GPUs that the plan takes are checked. The check returns the first rule that the plan breaks; a plan is
//! never applied in part. The cost is O(actions x servers per gang), with an additional logarithmic factor if GPUs are
//! shared; it is never O(cluster). The rules are in `docs/concepts/simulated-second.md`.

use crate::error::{PlanError, Rule};
use crate::plan::{PlanBuffer, TimerOrder};
use crate::state::State;
use crate::state::jobs::Phase;
use crate::structures::bits::slots;
use gangline_model::{
    Action, ActionKind, GpuSet, JobId, MAX_SECONDS, ServerGpus, ServerId, SimSpan, Terms, Verb,
    gpus_in,
};

/// Buffers that are reused for every plan, such as the free masks of the servers that the plan names.
#[derive(Clone, Debug)]
pub(crate) struct Overlay {
    stamp: Vec<u32>,
    free: Vec<u64>,
    epoch: u32,
    /// Server, job, and mask of the slots on this server that the plan assigns to the job.
    takes: Vec<(ServerId, JobId, u64)>,
    /// Job, part, and index of the action, in ascending order; filled only when needed.
    by_part: Vec<(JobId, u16, u32)>,
    /// Jobs that would be on one GPU after the plan.
    residents: Vec<JobId>,
}

/// The actions of a plan, sorted by part. A valid plan has at most one action per part.
#[derive(Clone, Copy)]
struct ByPart<'a> {
    plan: &'a PlanBuffer,
    sorted: &'a [(JobId, u16, u32)],
}

impl<'a> ByPart<'a> {
    fn get(self, job: JobId, part: u16) -> Option<&'a Action> {
        let key = |entry: &(JobId, u16, u32)| (entry.0, entry.1);
        let found = self.sorted.binary_search_by_key(&(job, part), key);
        found
            .ok()
            .map(|at| &self.plan.actions[self.sorted[at].2 as usize])
    }

    fn of(self, job: JobId) -> impl Iterator<Item = &'a Action> {
        let from = self.sorted.partition_point(|entry| entry.0 < job);
        let own = self.sorted[from..]
            .iter()
            .take_while(move |entry| entry.0 == job);
        own.map(move |entry| &self.plan.actions[entry.2 as usize])
    }

    /// Returns whether a running job has a part on this server and the plan leaves the part there.
    fn stays(self, state: &State, job: JobId, server: ServerId) -> bool {
        let here = state.run(job).and_then(|run| run.part_on(server));
        let action = here.and_then(|part| self.get(job, part.number));
        here.is_some() && !action.is_some_and(Action::releases)
    }

    /// Returns the sub-batch that the job's part on a server has after the plan; 0 means the full batch size.
    fn sub_batch(self, state: &State, job: JobId, server: ServerId) -> u32 {
        let named = |action: &&Action| action.gpus().is_some_and(|gpus| gpus.mask_on(server) != 0);
        let (part, action) = if let Some(action) = self.of(job).find(named) {
            (action.part, Some(action))
        } else {
            let here = state.run(job).and_then(|run| run.part_on(server));
            let Some(here) = here else { return 0 };
            (here.number, self.get(job, here.number))
        };
        let before = match action.map(|action| &action.verb) {
            Some(Verb::Start(_)) => 0,
            _ => sub_batch_of(state, job, part),
        };
        action
            .and_then(|action| action.terms.sub_batch)
            .unwrap_or(before)
    }
}

/// Returns the current sub-batch of a part; 0 means that the part runs at full batch size or does not exist.
fn sub_batch_of(state: &State, job: JobId, part: u16) -> u32 {
    let part = state.run(job).and_then(|run| run.part(part));
    part.map_or(0, |part| part.sub_batch)
}

/// If a plan has at most this many actions, they are compared pairwise, because this is cheaper than sorting them.
const FEW_ACTIONS: usize = 8;

/// Returns whether no two actions concern the same part.
#[inline]
fn are_distinct(actions: &[Action]) -> bool {
    let mut earlier = actions;
    while let Some((last, others)) = earlier.split_last() {
        let same = |other: &Action| other.job == last.job && other.part == last.part;
        if others.iter().any(same) {
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

impl Broken {
    fn by(action: &Action, server: Option<ServerId>, rule: Rule) -> Self {
        Self {
            job: action.job,
            kind: action.kind(),
            server,
            rule,
        }
    }
}

impl Overlay {
    pub(crate) fn new(servers: usize) -> Self {
        Self {
            stamp: vec![0; servers],
            free: vec![0; servers],
            epoch: 0,
            takes: Vec::new(),
            by_part: Vec::new(),
            residents: Vec::new(),
        }
    }

    #[inline]
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
            time: state.now(),
            decision,
        })
    }

    #[inline]
    fn find(&mut self, state: &State, plan: &PlanBuffer) -> Result<(), Broken> {
        self.epoch = self.epoch.wrapping_add(1);
        for action in &plan.actions {
            check_subject(state, action)?;
            if action.terms != Terms::default() {
                check_terms(state, action)?;
            }
        }
        if plan.actions.len() > 1 {
            self.check_repeats(plan)?;
        }
        let is_shared = state.features().shares;
        if !is_shared && plan.actions.iter().any(Action::releases) {
            self.release_all(state, plan);
        }
        for action in &plan.actions {
            if let Some(gpus) = action.gpus() {
                check_set(state, action, gpus)?;
                if !is_shared {
                    self.take(state, action, gpus)?;
                }
            }
        }
        if state.features().forks || (is_shared && !self.takes_free(state, plan)) {
            self.check_together(state, plan)?;
        }
        check_timers(state, plan)
    }

    #[inline(never)]
    fn check_repeats(&mut self, plan: &PlanBuffer) -> Result<(), Broken> {
        if plan.actions.len() <= FEW_ACTIONS && are_distinct(&plan.actions) {
            return Ok(());
        }
        self.sort_by_part(plan);
        let mut pairs = self.by_part.windows(2);
        match pairs.find(|pair| (pair[0].0, pair[0].1) == (pair[1].0, pair[1].1)) {
            None => Ok(()),
            Some(pair) => {
                let repeated = &plan.actions[pair[1].2 as usize];
                Err(Broken::by(repeated, None, Rule::TwoActions))
            }
        }
    }

    fn sort_by_part(&mut self, plan: &PlanBuffer) {
        self.by_part.clear();
        let numbered = plan.actions.iter().zip(0..);
        let keyed = numbered.map(|(action, number)| (action.job, action.part, number));
        self.by_part.extend(keyed);
        if !self.by_part.is_sorted() {
            self.by_part.sort_unstable();
        }
    }

    #[inline]
    fn free_of(&mut self, state: &State, server: ServerId) -> &mut u64 {
        let at = server.index();
        if self.stamp[at] != self.epoch {
            self.stamp[at] = self.epoch;
            self.free[at] = state.occupancy().free_mask(server);
        }
        &mut self.free[at]
    }

    /// Marks as free the GPUs that the plan releases.
    #[inline(never)]
    fn release_all(&mut self, state: &State, plan: &PlanBuffer) {
        for action in plan.actions.iter().filter(|action| action.releases()) {
            let run = state.run(action.job);
            let Some(part) = run.and_then(|run| run.part(action.part)) else {
                continue;
            };
            for one in part.gpus.by_server() {
                *self.free_of(state, one.server) |= one.mask;
            }
        }
    }

    #[expect(
        clippy::inline_always,
        reason = "runs once per start, and has two callers"
    )]
    #[inline(always)]
    fn take(&mut self, state: &State, action: &Action, gpus: &GpuSet) -> Result<(), Broken> {
        for one in gpus.by_server() {
            let free = self.free_of(state, one.server);
            if *free & one.mask != one.mask {
                return Err(Broken::by(action, Some(one.server), Rule::Capacity));
            }
            *free &= !one.mask;
        }
        Ok(())
    }

    /// Returns whether the plan only preempts jobs and starts jobs on GPUs that are free before the plan, each GPU at
    /// most once. In that case, no job gets a co-runner, so the rules of sharing hold.
    fn takes_free(&mut self, state: &State, plan: &PlanBuffer) -> bool {
        plan.actions.iter().all(|action| match &action.verb {
            Verb::Start(gpus) => self.take(state, action, gpus).is_ok(),
            Verb::Preempt => true,
            Verb::Move(_) | Verb::Keep => false,
        })
    }

    /// Checks the rules that concern several actions together, on the state after the whole plan. These are the rules
    /// for parts and for shared GPUs.
    fn check_together(&mut self, state: &State, plan: &PlanBuffer) -> Result<(), Broken> {
        self.sort_by_part(plan);
        if state.features().forks {
            self.check_parts(state, plan)?;
        }
        if state.features().shares {
            self.check_sharing(state, plan)?;
        }
        Ok(())
    }

    /// Checks that each part is on a single server, and that no two parts of a job are on the same server.
    fn check_parts(&mut self, state: &State, plan: &PlanBuffer) -> Result<(), Broken> {
        let by_part = ByPart {
            plan,
            sorted: &self.by_part,
        };
        for action in &plan.actions {
            let Some(gpus) = action.gpus() else { continue };
            let [one] = gpus.by_server() else {
                return Err(Broken::by(action, None, Rule::PartSpansServers));
            };
            let named = by_part.of(action.job).filter_map(Action::gpus);
            let there = named.filter(|gpus| gpus.mask_on(one.server) != 0);
            if there.count() > 1 || by_part.stays(state, action.job, one.server) {
                return Err(Broken::by(action, Some(one.server), Rule::PartsShareServer));
            }
        }
        Ok(())
    }

    /// For each GPU that the plan touches, checks the rules for the jobs that would be on this GPU after the whole
    /// plan.
    fn check_sharing(&mut self, state: &State, plan: &PlanBuffer) -> Result<(), Broken> {
        self.takes.clear();
        for action in &plan.actions {
            if let Some(gpus) = action.gpus() {
                self.note_takes(action.job, gpus);
            } else if action.terms.sub_batch.is_some() {
                let run = state.run(action.job);
                let part = run.and_then(|run| run.part(action.part));
                let part = part.expect("`check_subject` refused parts that hold no GPUs");
                self.note_takes(action.job, &part.gpus);
            }
        }
        self.takes.sort_unstable();
        let by_part = ByPart {
            plan,
            sorted: &self.by_part,
        };
        let releases = plan.actions.iter().any(Action::releases);
        let residents = &mut self.residents;
        for takes in self.takes.chunk_by(|a, b| a.0 == b.0) {
            let server = takes[0].0;
            let all = takes.iter().fold(0, |all, take| all | take.2);
            let base = state.occupancy().gpu(server, 0);
            let mut last = None;
            for slot in slots(all) {
                // Usually all GPUs of a gang have the same residents.
                let pair = state.occupancy().pair(base + slot as usize);
                if takes.len() == 1 && last.replace(pair) == Some(pair) {
                    continue;
                }
                let present = state.occupancy().residents(server, slot).iter().copied();
                let stays = |job: &JobId| !releases || by_part.stays(state, *job, server);
                residents.clear();
                residents.extend(present.filter(stays));
                let here = takes.iter().filter(|take| take.2 >> slot & 1 == 1);
                let taking = here.map(|take| take.1);
                for job in taking.clone() {
                    if !residents.contains(&job) {
                        residents.push(job);
                    }
                }
                check_residents(state, by_part, server, residents).map_err(|rule| {
                    let job = taking.clone().next();
                    let job = job.expect("one of the takes names the slot");
                    let action = by_part
                        .of(job)
                        .next()
                        .expect("the plan starts or moves the job");
                    Broken::by(action, Some(server), rule)
                })?;
            }
        }
        Ok(())
    }

    fn note_takes(&mut self, job: JobId, gpus: &GpuSet) {
        let on = gpus.by_server().iter();
        self.takes.extend(on.map(|one| (one.server, job, one.mask)));
    }
}

/// Checks that the job and its part are in a state in which the action is possible.
#[inline]
fn check_subject(state: &State, action: &Action) -> Result<(), Broken> {
    let fail = |rule| Err(Broken::by(action, None, rule));
    if action.part != 0 && !state.features().forks {
        return fail(Rule::NotForked);
    }
    let starts = matches!(action.verb, Verb::Start(_));
    match state.lives().phase(action.job) {
        None => fail(Rule::UnknownJob),
        Some(Phase::Pending) => fail(Rule::NotArrived),
        Some(Phase::Finished | Phase::Dropped) => fail(Rule::FinishedJob),
        Some(Phase::Waiting) if !starts => fail(Rule::NotRunning),
        Some(Phase::Waiting) => Ok(()),
        Some(Phase::Running) => {
            let run = state.run(action.job);
            let holds = run.is_some_and(|run| run.part(action.part).is_some());
            match (holds, starts) {
                (true, true) => fail(Rule::AlreadyRunning),
                (false, false) => fail(Rule::NotRunning),
                (true, false) | (false, true) => Ok(()),
            }
        }
    }
}

/// Checks that a set of GPUs is a valid gang for the job. A gang must have the right size, and its servers must be up
/// and of allowed types. All its GPUs must have the same type unless the policy mixes types.
#[inline]
fn check_set(state: &State, action: &Action, gpus: &GpuSet) -> Result<(), Broken> {
    let usable = state.types().usable(action.job);
    let mut first_type = None;
    let mut count = 0;
    for &ServerGpus { server, mask } in gpus.by_server() {
        let fail = |rule| Err(Broken::by(action, Some(server), rule));
        let there = state.occupancy();
        if there.full_mask(server).is_none_or(|full| mask & !full != 0) {
            return fail(Rule::NoSuchGpu);
        }
        if !there.is_up(server) {
            return fail(Rule::ServerDown);
        }
        let gpu_type = there.type_of(server);
        if usable >> gpu_type.index() & 1 == 0 {
            return fail(Rule::TypeNotAllowed);
        }
        if *first_type.get_or_insert(gpu_type) != gpu_type && !state.types().mixes() {
            return fail(Rule::MixedTypes);
        }
        count += gpus_in(mask);
    }
    let gang = match gpus.by_server().first() {
        Some(first) => state.gang_on(action.job, first.server),
        None => state.jobs().gpus(action.job),
    };
    if count != gang && !state.may_take(action, gpus) {
        return Err(Broken::by(action, None, Rule::GangSize));
    }
    if state.types().copy_gpus().is_some() && state.base_on(action.job, gpus) <= 0.0 {
        // There is no rate for this number of GPUs.
        return Err(Broken::by(action, None, Rule::TypeNotAllowed));
    }
    Ok(())
}

#[cold]
fn check_terms(state: &State, action: &Action) -> Result<(), Broken> {
    let fail = |rule| Err(Broken::by(action, None, rule));
    if action.terms.accum.is_some() {
        check_batch(state, action).map_err(|rule| Broken::by(action, None, rule))?;
    }
    let is_batch = |sub_batch| {
        action.terms.accum.is_some()
            || (1..=state.jobs().batch_size(action.job)).contains(&sub_batch)
    };
    let is_span = |span: SimSpan| span.0 >= 0 && span.seconds() <= MAX_SECONDS;
    let terms = &action.terms;
    if !terms.overhead.is_none_or(is_span) {
        return fail(Rule::Overhead);
    }
    if !terms.quota.is_none_or(|quota| quota > 0.0) {
        return fail(Rule::WorkLimit); // The comparison also rejects NaN.
    }
    if !terms.sub_batch.is_none_or(is_batch) {
        return fail(Rule::SubBatch);
    }
    Ok(())
}

/// Checks that an elastic job's model allows the batch size, and that the batch fits into memory.
fn check_batch(state: &State, action: &Action) -> Result<(), Rule> {
    let terms = &action.terms;
    let (Some(pass_batch), Some(accum)) = (terms.sub_batch, terms.accum) else {
        return Err(Rule::SubBatch); // The batch of the action is incomplete.
    };
    let run = state.run(action.job);
    let held = run
        .and_then(|run| run.part(action.part))
        .map(|part| &part.gpus);
    let Some(gpus) = action.gpus().or(held) else {
        return Err(Rule::SubBatch);
    };
    let servers = gpus.by_server();
    if servers
        .iter()
        .any(|one| one.server.index() >= state.occupancy().servers())
    {
        return Err(Rule::NoSuchGpu);
    }
    if !state.may_have(action.job, gpus.gpus()) {
        return Err(Rule::GangSize);
    }
    let rate = state.elastic_rate(action.job, gpus, (pass_batch, accum), 0.0);
    if rate.is_none() {
        return Err(Rule::SubBatch);
    }
    let bytes = state.pass_bytes(action.job, pass_batch);
    let capacity = |one: &ServerGpus| {
        let gpu_type = state.occupancy().type_of(one.server);
        state.cluster().gpu_types()[gpu_type.index()].memory_bytes
    };
    if servers.iter().any(|one| capacity(one) < bytes) {
        return Err(Rule::Memory);
    }
    Ok(())
}

fn check_timers(state: &State, plan: &PlanBuffer) -> Result<(), Broken> {
    for order in &plan.timers {
        if let TimerOrder::Arm(tag, time) = order
            && *time <= state.now()
        {
            return Err(Broken {
                job: JobId(tag.id),
                kind: ActionKind::Timer,
                server: None,
                rule: Rule::TimerNotAfterNow,
            });
        }
    }
    Ok(())
}

/// Checks the rules for the jobs that would be on one GPU together.
#[inline]
fn check_residents(
    state: &State,
    by_part: ByPart<'_>,
    server: ServerId,
    residents: &[JobId],
) -> Result<(), Rule> {
    if residents.len() > state.features().max_share as usize {
        return Err(Rule::SharingLimit);
    }
    let gpu_type = state.occupancy().type_of(server);
    for (at, &one) in residents.iter().enumerate() {
        for &other in &residents[at + 1..] {
            if state.pair_xi(one, other, gpu_type).is_none() {
                return Err(Rule::InfeasiblePair);
            }
        }
    }
    let capacity = state.cluster().gpu_types()[gpu_type.index()].memory_bytes;
    // Looking up the memory of a sub-batch is expensive. It is not needed if all jobs fit at full batch size, because
    // no sub-batch needs more memory than the full batch.
    let full = |&job| u128::from(state.jobs().memory_bytes(job));
    if residents.iter().map(full).sum::<u128>() <= u128::from(capacity) {
        return Ok(());
    }
    let memory = |&job| {
        let sub_batch = by_part.sub_batch(state, job, server);
        u128::from(state.memory_bytes(job, sub_batch))
    };
    if residents.iter().map(memory).sum::<u128>() > u128::from(capacity) {
        Err(Rule::Memory)
    } else {
        Ok(())
    }
}
