//! A plan under construction in Python: the GPUs that are free after its actions so far, and the places that a
//! placement rule finds among them. The rules and their results are the same as for registered policies.

use crate::actions::Parser;
use crate::error::CoreError;
use crate::options::params;
use gangline_engine::{ClusterView, Mark, Plan};
use gangline_model::{GpuSet, GpuTypeId, JobId};
use gangline_policies::ParamReader;
use gangline_policies::place::{Demand, PlacementParams, Placer, Rule};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

/// The draft of a plan; a Python list contains the actions of the plan.
#[derive(Default)]
pub(crate) struct Draft {
    parser: Parser,
    /// Memory address of the list, and the number of its actions that the draft includes.
    list: usize,
    synced: usize,
    /// State of the engine's draft before the plan changed it.
    start: Option<Mark>,
}

impl Draft {
    /// Applies the actions that were added to the list. If the list has become shorter, or is a different list, it is
    /// read from the start again.
    pub(crate) fn sync(
        &mut self,
        view: &ClusterView<'_>,
        plan: &mut Plan<'_>,
        list: &Bound<'_, PyList>,
    ) -> PyResult<()> {
        let address = list.as_ptr() as usize;
        let start = *self.start.get_or_insert_with(|| plan.mark());
        if self.list != address || self.synced > list.len() {
            plan.rollback(start);
            self.parser = Parser::default();
            self.list = address;
            self.synced = 0;
        }
        if self.synced == list.len() {
            return Ok(());
        }
        for at in self.synced..list.len() {
            self.parser.push(view, &list.get_item(at)?)?;
        }
        self.synced = list.len();
        self.show(view, plan);
        Ok(())
    }

    /// Brings the engine's draft up to date with the plan.
    fn show(&mut self, view: &ClusterView<'_>, plan: &mut Plan<'_>) {
        for (server, mask) in self.parser.scratch.changed() {
            if view.is_up(server) && plan.free().free_mask(server) != mask {
                plan.free().set_free_mask(server, mask);
            }
        }
    }

    pub(crate) fn parser(&self) -> &Parser {
        &self.parser
    }

    /// Releases the GPUs of a running job, if it still holds them. Returns whether the job held them.
    fn release(&mut self, view: &ClusterView<'_>, plan: &mut Plan<'_>, job: JobId) -> bool {
        if view.run(job).is_none() || self.parser.is_released(job) {
            return false;
        }
        self.parser.scratch.release(view, job, 0);
        self.show(view, plan);
        true
    }
}

/// The placement rules that a run has used; each is created once.
#[derive(Default)]
pub(crate) struct Placers {
    list: Vec<Placer>,
    /// Rules that were requested by name only, with default parameters.
    plain: Vec<(String, usize)>,
}

impl Placers {
    /// Returns the index of a rule.
    pub(crate) fn find(
        &mut self,
        view: &ClusterView<'_>,
        rule: &str,
        given: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<usize> {
        if given.is_none()
            && let Some((_, at)) = self.plain.iter().find(|(name, _)| name == rule)
        {
            return Ok(*at);
        }
        let mut values = given.map(params).transpose()?.unwrap_or_default();
        let word = gangline_policies::ParamValue::Str(rule.to_owned());
        values.insert("placement".to_owned(), word);
        let specs = PlacementParams::specs(Rule::Consolidate);
        let reader = ParamReader::new("plan.place", specs, &values).map_err(CoreError::from)?;
        let wanted = PlacementParams::read(&reader);
        let known = self
            .list
            .iter()
            .position(|placer| *placer.params() == wanted);
        let at = known.unwrap_or_else(|| {
            self.list.push(Placer::new(wanted, view));
            self.list.len() - 1
        });
        if given.is_none() {
            self.plain.push((rule.to_owned(), at));
        }
        Ok(at)
    }

    /// Returns the GPUs that the rule chooses for a job in the draft. They are on the first of the job's types that is
    /// allowed and on which the rule finds a place.
    pub(crate) fn place(
        &mut self,
        at: usize,
        view: &ClusterView<'_>,
        plan: &mut Plan<'_>,
        (job, gpus, allowed): (JobId, Option<u32>, u64),
    ) -> Option<GpuSet> {
        let starts = plan.starts(job);
        let placer = &mut self.list[at];
        let mut demand: Demand = placer.demand(view.jobs(), job, starts);
        demand.gpus = gpus.unwrap_or(demand.gpus);
        let free = plan.free();
        view.types_of(job)
            .filter(|gpu_type: &GpuTypeId| allowed >> gpu_type.index() & 1 == 1)
            .find_map(|gpu_type| {
                let is_open = free.pool(gpu_type).free_total() >= demand.gpus
                    && placer.can(free, gpu_type, &demand);
                is_open.then(|| placer.place(free, gpu_type, &demand))?
            })
    }
}

/// The arguments of `plan.place`.
pub(crate) struct Wanted {
    pub(crate) job: JobId,
    /// Number of GPUs for an elastic job, if it differs from the gang size.
    pub(crate) gpus: Option<u32>,
    /// GPU types, as a mask.
    pub(crate) types: u64,
    /// Index of the rule.
    pub(crate) rule: usize,
}

/// Returns the GPUs for a job after the actions so far, and whether the job is a running one that moves. GPUs that the
/// job holds count as free.
pub(crate) fn place(
    (draft, placers): (&mut Draft, &mut Placers),
    view: &ClusterView<'_>,
    plan: &mut Plan<'_>,
    wanted: &Wanted,
) -> Option<(GpuSet, bool)> {
    let job = wanted.job;
    let is_running = view.run(job).is_some();
    let held = is_running && !draft.parser.is_released(job);
    let mark = plan.mark();
    if held {
        draft.release(view, plan, job);
    }
    let asked = (job, wanted.gpus, wanted.types);
    let found = placers.place(wanted.rule, view, plan, asked);
    if held && found.is_none() {
        draft.parser.scratch.restore(view, job);
        plan.rollback(mark);
    }
    found.map(|gpus| (gpus, is_running))
}
