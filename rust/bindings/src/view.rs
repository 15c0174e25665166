//! The view of a policy written in Python, and the state from which its plan is built. There is one view per run; it is
//! lent to Python at each decision. Columns are cached until the end of the decision, and orders and placement rules
//! are kept between decisions.

use crate::actions::parse;
use crate::columns::{JobRows, array, check_knowledge, column, indices, label_of};
use crate::draft::{Draft, Placers, Wanted, place};
use crate::driven::{Look, Shared};
use crate::error::{CoreError, raise};
use crate::orders::{Kept, Measure, Spec, Walk};
use crate::window::{Arrays, Standing, fill};
use gangline_engine::{Changes, ClusterView, Plan};
use gangline_model::{Action, GpuSet, GpuTypeId, JobId, ServerId, SimTime, Verb};
use gangline_policies::kit::Seen;
use gangline_policies::sharing::Pair;
use gangline_policies::{Allocation, HadarParams, Market};
use numpy::{PyReadwriteArray1, PyReadwriteArray2};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyDict, PyList, PyTuple};
use rustc_hash::{FxHashMap, FxHashSet};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The state at the current decision, and the data kept between decisions.
#[pyclass(frozen, module = "gangline._core")]
pub(crate) struct PolicyView {
    inner: Mutex<Inner>,
    knows_work: bool,
    /// The run, if it is driven from outside; it can be read between steps.
    run: Option<Arc<Shared>>,
}

#[derive(Default)]
struct Inner {
    lent: Option<Lent>,
    /// Number of the loan. Objects that were created during an earlier loan are out of date.
    loan: u64,
    columns: FxHashMap<String, Py<PyAny>>,
    rows: JobRows,
    draft: Draft,
    placers: Placers,
    kept: Kept,
    /// Index of the step to which the data belongs, in a step-by-step run.
    stamp: u64,
    decision: Option<u64>,
}

impl Inner {
    /// Resets the data after a step of a step-by-step run.
    fn follow(&mut self, look: &Look<'_, '_, '_>) -> PyResult<()> {
        if self.stamp == look.stamp {
            return Ok(());
        }
        self.stamp = look.stamp;
        self.loan += 1;
        self.columns.clear();
        self.rows = JobRows::default();
        self.draft = Draft::default();
        let is_due = look.plan.is_some();
        if is_due && self.decision == Some(look.decision) {
            return Ok(());
        }
        if is_due && self.decision.is_some_and(|last| last + 1 == look.decision) {
            let updated = self.kept.update(look.view, look.changes);
            updated.map_err(CoreError::from)?;
        } else {
            self.kept = Kept::default();
        }
        self.decision = is_due.then_some(look.decision);
        Ok(())
    }
}

/// The view and the plan that are lent to Python for the duration of a call.
#[derive(Clone, Copy)]
struct Lent {
    view: ClusterView<'static>,
    /// The plan to be filled; `None` outside a decision.
    plan: Option<NonNull<Plan<'static>>>,
}

// SAFETY: a loan is used only under the mutex, while the lending call is on the stack of the thread that runs the
// simulation and waits for Python.
unsafe impl Send for Lent {}

/// The state that is lent for the duration of a call.
pub(crate) enum Loan<'a, 'b> {
    /// The state after a plan has been applied. The orders are rebuilt for this call.
    Look,
    /// The state before the first event. The orders are rebuilt, and the draft is the empty cluster.
    Start(&'a mut Plan<'b>),
    /// A decision.
    Decide(&'a Changes, &'a mut Plan<'b>),
}

/// The sub-batch, overhead, quota and `accum` of an action, as given in Python.
type GivenTerms = (Given, Given, Given, Given);
type Given = Option<Py<PyAny>>;

struct Guard<'a>(&'a PolicyView, Option<Kept>);

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        let mut inner = self.0.lock();
        inner.lent = None;
        if let Some(kept) = self.1.take() {
            inner.kept = kept;
        }
    }
}

impl PolicyView {
    pub(crate) fn new(knows_work: bool) -> Self {
        Self {
            inner: Mutex::default(),
            knows_work,
            run: None,
        }
    }

    /// Creates the view of a run that is driven from outside.
    pub(crate) fn of_run(knows_work: bool, run: Arc<Shared>) -> Self {
        Self {
            run: Some(run),
            ..Self::new(knows_work)
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lends a view to Python for the duration of `body`.
    pub(crate) fn lend<R>(
        &self,
        view: &ClusterView<'_>,
        loan: Loan<'_, '_>,
        body: impl FnOnce() -> PyResult<R>,
    ) -> PyResult<R> {
        let mut inner = self.lock();
        // SAFETY: the lifetimes are erased only while this call is on the stack. The guard below removes the loan
        // from the object before the call returns or unwinds; every read goes through the mutex.
        let view: ClusterView<'static> = unsafe { std::mem::transmute(*view) };
        let mut set_aside = None;
        let plan = match loan {
            Loan::Look => {
                set_aside = Some(std::mem::take(&mut inner.kept));
                None
            }
            Loan::Start(plan) => {
                // One policy object may be used in several runs, but a view belongs to one run.
                set_aside = Some(Kept::default());
                Some(NonNull::from(plan).cast::<Plan<'static>>())
            }
            Loan::Decide(changes, plan) => {
                inner.kept.update(&view, changes).map_err(CoreError::from)?;
                Some(NonNull::from(plan).cast::<Plan<'static>>())
            }
        };
        inner.lent = Some(Lent { view, plan });
        inner.loan += 1;
        inner.columns.clear();
        inner.rows = JobRows::default();
        inner.draft = Draft::default();
        drop(inner);
        let _guard = Guard(self, set_aside);
        body()
    }

    fn look<R>(&self, read: impl FnOnce(&ClusterView<'_>) -> PyResult<R>) -> PyResult<R> {
        self.work(|view, _| read(view))
    }

    fn work<R>(
        &self,
        read: impl FnOnce(&ClusterView<'_>, &mut Inner) -> PyResult<R>,
    ) -> PyResult<R> {
        self.with(|view, _, inner| read(view, inner))
    }

    fn with<R>(
        &self,
        work: impl FnOnce(&ClusterView<'_>, Option<&mut Plan<'_>>, &mut Inner) -> PyResult<R>,
    ) -> PyResult<R> {
        let mut inner = self.lock();
        if let Some(mut lent) = inner.lent {
            // SAFETY: the engine's plan outlives the loan, and nothing else uses it during the loan.
            let plan = lent.plan.as_mut().map(|plan| unsafe { plan.as_mut() });
            return work(&lent.view, plan, &mut inner);
        }
        if let Some(run) = &self.run {
            return run.look(|look| {
                inner.follow(&look)?;
                work(look.view, look.plan, &mut inner)
            });
        }
        drop(inner);
        Err(policy_error(
            "view",
            "a view is valid only during `decide`; copy the values that you need later",
        ))
    }

    /// Brings the draft up to date with the actions in a list, and calls a function with the draft.
    fn draw<R>(
        &self,
        list: &Bound<'_, PyList>,
        work: impl FnOnce(&ClusterView<'_>, &mut Plan<'_>, &mut Inner) -> PyResult<R>,
    ) -> PyResult<R> {
        self.with(|view, plan, inner| {
            let Some(plan) = plan else {
                let message = if inner.lent.is_some() {
                    "only `decide` makes plans"
                } else {
                    "no decision is due, so there is no plan; call `advance` first"
                };
                return Err(policy_error("plan", message));
            };
            inner.draft.sync(view, plan, list)?;
            work(view, plan, inner)
        })
    }
}

pub(crate) fn policy_error(field: &str, message: &str) -> PyErr {
    Python::attach(|py| {
        let facts = [("field", field)].into_py_dict(py)?;
        raise(py, "PolicyError", message, &facts)
    })
    .unwrap_or_else(|error| error)
}

/// Returns the job with the given index, or an error if there is no such job.
pub(crate) fn job_of(view: &ClusterView<'_>, job: u32) -> PyResult<JobId> {
    if (job as usize) < view.jobs().len() {
        return Ok(JobId(job));
    }
    let last = view.jobs().len().saturating_sub(1);
    Err(policy_error(
        "job",
        &format!("no job {job}: expected an index from 0 to {last}"),
    ))
}

fn type_of(view: &ClusterView<'_>, gpu_type: usize) -> PyResult<GpuTypeId> {
    let types = view.cluster().gpu_types().len();
    if gpu_type < types {
        return Ok(GpuTypeId::new(gpu_type));
    }
    Err(policy_error(
        "gpu_type",
        &format!(
            "no GPU type {gpu_type}: expected an index from 0 to {}",
            types - 1
        ),
    ))
}

fn gpus_of(view: &ClusterView<'_>, pairs: Vec<(u32, u64)>) -> PyResult<GpuSet> {
    let mut gpus = GpuSet::new();
    for (server, mask) in pairs {
        let here = view.cluster().servers().get(server as usize);
        let all = here.map_or(0, |here| u64::MAX >> (64 - here.gpus.clamp(1, 64)));
        if mask == 0 || mask & !all != 0 {
            return Err(policy_error(
                "masks",
                &format!(
                    "the slot mask {mask} is 0 or names GPUs that server {server} does not have"
                ),
            ));
        }
        gpus.insert(ServerId(server), mask);
    }
    if gpus.by_server().is_empty() {
        return Err(policy_error("masks", "expected at least one GPU"));
    }
    Ok(gpus)
}

#[pymethods]
impl PolicyView {
    #[getter]
    fn now_s(&self) -> PyResult<f64> {
        self.look(|view| Ok(view.now().seconds()))
    }

    #[getter]
    fn now_ns(&self) -> PyResult<i64> {
        self.look(|view| Ok(view.now().0))
    }

    /// Returns whether the policy may read the remaining work.
    #[getter]
    fn knows_work(&self) -> bool {
        self.knows_work
    }

    /// Returns the number of rows of `waiting`.
    fn waiting_count(&self) -> PyResult<usize> {
        self.look(|view| Ok(view.waiting_count()))
    }

    /// Returns the names of GPU types, models, users, virtual clusters, accounts, partitions or qualities of service,
    /// by index.
    fn labels(&self, of: &str) -> PyResult<Vec<String>> {
        self.look(|view| {
            let columns = view.jobs().columns();
            Ok(match of {
                "gpu_type" => {
                    let types = view.cluster().gpu_types().iter();
                    types.map(|gpu_type| gpu_type.name.clone()).collect()
                }
                "model" => columns.model_labels.clone(),
                other => {
                    let label = label_of(columns, other);
                    let expected = "gpu_type, model, user, vc, account, partition or qos";
                    let message = || format!("no labels {other}: expected {expected}");
                    let label = label.ok_or_else(|| PyValueError::new_err(message()))?;
                    label.names.clone()
                }
            })
        })
    }

    /// Returns the GPUs that a running job, or one of its parts, holds: (server, slot mask).
    #[pyo3(signature = (job, part=None))]
    fn gpus_of(&self, job: u32, part: Option<u16>) -> PyResult<Vec<(u32, u64)>> {
        self.look(|view| {
            let known = (job as usize) < view.jobs().len();
            let run = known.then(|| view.run(JobId(job))).flatten();
            let parts = run.map_or(&[][..], |run| run.parts()).iter();
            let chosen = parts.filter(|one| part.is_none_or(|number| one.number == number));
            let gpus = chosen.flat_map(|one| one.gpus.by_server());
            Ok(gpus.map(|one| (one.server.0, one.mask)).collect())
        })
    }

    /// Returns the batch with which an elastic job makes the most progress on this number of GPUs: (samples per GPU and
    /// pass, passes after the first, iterations of the initial batch per second at speed 1).
    fn best_batch(&self, job: u32, gpus: u32, spans: bool) -> PyResult<Option<(u32, u32, f64)>> {
        self.look(|view| {
            let known = (job as usize) < view.jobs().len();
            let model = known.then(|| view.elastic(JobId(job))).flatten();
            let model = model.filter(|model| (1..=model.class().max_gpus).contains(&gpus));
            let best = model.map(|model| model.best(view.noise_phase(JobId(job)), gpus, spans));
            let best = best.filter(|best| best.rate > 0.0);
            Ok(best.map(|best| (best.pass_batch, best.accum, best.rate)))
        })
    }

    /// Returns the rate of a job in iterations/s on the given GPUs, with their current residents or alone.
    fn rate_on(&self, job: u32, gpus: Vec<(u32, u64)>, alone: bool) -> PyResult<f64> {
        self.look(|view| {
            let (job, gpus) = (job_of(view, job)?, gpus_of(view, gpus)?);
            Ok(if alone {
                view.rate_alone(job, &gpus)
            } else {
                view.rate_if(job, &gpus)
            })
        })
    }

    /// Returns the slowdown factor of a job that shares GPUs of a type with another job; `None` if the two must not
    /// share.
    fn slowdown(&self, job: u32, beside: u32, gpu_type: usize) -> PyResult<Option<f64>> {
        self.look(|view| {
            let (job, beside) = (job_of(view, job)?, job_of(view, beside)?);
            Ok(view.xi(job, beside, type_of(view, gpu_type)?))
        })
    }

    /// Returns one column of `waiting`, `running`, `parts`, `residents` or `servers`.
    fn column<'py>(&self, py: Python<'py>, table: &str, name: &str) -> PyResult<Bound<'py, PyAny>> {
        self.work(|view, inner| {
            let key = format!("{table}.{name}");
            if let Some(known) = inner.columns.get(&key) {
                return Ok(known.bind(py).clone());
            }
            let rows = &mut inner.rows;
            let made = column(py, view, self.knows_work, rows, (table, name))?;
            inner.columns.insert(key, made.clone().unbind());
            Ok(made)
        })
    }

    // These methods read and extend the draft of a plan, which the list of its actions defines.

    /// Starts or moves a job to the place that a placement rule chooses, and adds the action to the list. Returns
    /// whether a place was found. `terms` are sub-batch, overhead, quota and accum, as in the action tuples.
    #[allow(clippy::too_many_arguments)]
    fn place(
        &self,
        py: Python<'_>,
        list: &Bound<'_, PyList>,
        job: u32,
        rule: &str,
        params: Option<&Bound<'_, PyDict>>,
        types: Option<Vec<u32>>,
        gpus: Option<u32>,
        terms: GivenTerms,
    ) -> PyResult<bool> {
        self.draw(list, |view, plan, inner| {
            let allowed = types.map_or(u64::MAX, |types| {
                let known = types.iter().filter(|&&one| one < 64);
                known.fold(0, |mask, one| mask | 1 << one)
            });
            let wanted = Wanted {
                job: job_of(view, job)?,
                gpus,
                types: allowed,
                rule: inner.placers.find(view, rule, params)?,
            };
            let tools = (&mut inner.draft, &mut inner.placers);
            let Some((gpus, is_move)) = place(tools, view, plan, &wanted) else {
                return Ok(false);
            };
            let pairs: Vec<(u32, u64)> = gpus
                .by_server()
                .iter()
                .map(|one| (one.server.0, one.mask))
                .collect();
            let verb = if is_move { "move" } else { "start" };
            let (sub_batch, overhead, quota, accum) = terms;
            let action = (verb, job, pairs, true, sub_batch, overhead, quota, 0, accum);
            list.append(action.into_pyobject(py)?)?;
            Ok(true)
        })
    }

    /// Fills the arrays of [`crate::window::Arrays`] for a placement rule, with the state after the actions in the
    /// list. `estimate_error` is the error of the times that are shown; if it is `None`, no times are shown.
    #[allow(clippy::too_many_arguments)]
    fn window(
        &self,
        list: &Bound<'_, PyList>,
        rule: &str,
        params: Option<&Bound<'_, PyDict>>,
        estimate_error: Option<f64>,
        mut jobs: PyReadwriteArray2<'_, f64>,
        mut cluster: PyReadwriteArray1<'_, f64>,
        mut ids: PyReadwriteArray1<'_, i64>,
        mut mask: PyReadwriteArray1<'_, i8>,
    ) -> PyResult<Standing> {
        let mut arrays = Arrays {
            jobs: jobs.as_array_mut(),
            cluster: cluster.as_array_mut(),
            ids: ids.as_array_mut(),
            mask: mask.as_array_mut(),
        };
        self.draw(list, |view, plan, inner| {
            let rule = inner.placers.find(view, rule, params)?;
            let tools = (&inner.draft, &mut inner.placers, rule);
            let seen = estimate_error.map(Seen::new);
            fill(tools, view, plan, &mut arrays, seen)
        })
    }

    /// Undoes `("release", job)`: adds `("restore", job)` to the list if the job's GPUs are still free.
    fn restore(&self, py: Python<'_>, list: &Bound<'_, PyList>, job: u32) -> PyResult<bool> {
        self.draw(list, |view, _, inner| {
            let parser = inner.draft.parser();
            let id = job_of(view, job)?;
            let can = parser.is_released(id) && parser.scratch.can_restore(view, id);
            if can {
                list.append(("restore", job).into_pyobject(py)?)?;
            }
            Ok(can)
        })
    }

    /// Returns the jobs that a rule could never place, even on an empty cluster.
    fn unplaceable(
        &self,
        list: &Bound<'_, PyList>,
        rule: &str,
        params: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Vec<u32>> {
        self.draw(list, |view, plan, inner| {
            let rule = inner.placers.find(view, rule, params)?;
            let jobs = view.jobs().ids();
            let never = jobs.filter(|&job| {
                let asked = (job, None, u64::MAX);
                inner.placers.place(rule, view, plan, asked).is_none()
            });
            Ok(never.map(|job| job.0).collect())
        })
    }

    /// Returns, for each server, the mask of the slots that are free after the actions.
    fn free_masks<'py>(
        &self,
        py: Python<'py>,
        list: &Bound<'py, PyList>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.draw(list, |view, plan, _| {
            let servers = 0..view.cluster().servers().len();
            let masks = servers.map(|at| plan.free().free_mask(ServerId::new(at)));
            Ok(array::<u64>(py, masks.collect()))
        })
    }

    /// Returns the GPUs of the given type that hold exactly one job after the actions, as (job, server, slot mask),
    /// sorted by job, then by server.
    fn sole_residents(
        &self,
        list: &Bound<'_, PyList>,
        gpu_type: usize,
    ) -> PyResult<Vec<(u32, u32, u64)>> {
        self.draw(list, |view, _, inner| {
            let gpu_type = type_of(view, gpu_type)?;
            let actions = inner.draft.parser().actions();
            let mut sole: Vec<(u32, u32, u64)> = Vec::new();
            for (at, server) in view.cluster().servers().iter().enumerate() {
                if server.gpu_type != gpu_type {
                    continue;
                }
                let id = ServerId::new(at);
                for slot in 0..server.gpus {
                    let leaves = |job: &JobId| {
                        actions.iter().any(|one| one.job == *job && one.releases())
                            || inner.draft.parser().is_released(*job)
                    };
                    let stay = view.residents(id, slot).filter(|job| !leaves(job));
                    let come = actions.iter().filter_map(|one| {
                        let mask = one.gpus().map_or(0, |gpus| gpus.mask_on(id));
                        (mask >> slot & 1 == 1).then_some(one.job)
                    });
                    let mut there = stay.chain(come);
                    if let (Some(job), None) = (there.next(), there.next()) {
                        sole.push((job.0, id.0, 1 << slot));
                    }
                }
            }
            sole.sort_unstable();
            sole.dedup_by(|next, kept| {
                let is_same = (next.0, next.1) == (kept.0, kept.1);
                kept.2 |= if is_same { next.2 } else { 0 };
                is_same
            });
            Ok(sole)
        })
    }

    /// Applies the pair rule to a waiting job with a sub-batch (0 means the full batch) and a resident. Returns the
    /// mean completion time of the two if the waiting job starts now, the mean if it waits, and whether sharing pays.
    /// The result is `None` if the two must not share or if a GPU has too little memory for both.
    fn pair(
        &self,
        list: &Bound<'_, PyList>,
        job: u32,
        resident: u32,
        sub_batch: u32,
    ) -> PyResult<Option<(f64, f64, bool)>> {
        Python::attach(|py| check_knowledge(py, self.knows_work))?;
        self.draw(list, |view, _, inner| {
            let (job, resident) = (job_of(view, job)?, job_of(view, resident)?);
            let Some(stay) = stay(view, inner.draft.parser().actions(), resident)? else {
                return Ok(None);
            };
            let capacity = view.cluster().gpu_types()[stay.gpu_type.index()].memory_bytes;
            let bytes = view.memory_bytes(job, sub_batch) + stay.bytes;
            let xi = (
                view.xi(job, resident, stay.gpu_type),
                view.xi(resident, job, stay.gpu_type),
            );
            let (Some(xi_new), Some(xi_resident)) = xi else {
                return Ok(None);
            };
            if bytes > capacity {
                return Ok(None);
            }
            let alone_s = view.seconds_at(job, view.base_rate(job, stay.gpu_type));
            let told = |job, seconds| Seen::AS_TOLD.seconds(view, job, seconds);
            let pair = Pair {
                new_s: told(job, alone_s.map_err(CoreError::from)?),
                resident_s: told(resident, (stay.finish - view.now()).seconds() / stay.xi),
                xi_new,
                xi_resident: xi_resident.max(1.0),
                inflation: view.inflation(job, sub_batch, stay.gpu_type),
            };
            Ok(Some((pair.t_con(), pair.t_seq(), pair.shares())))
        })
    }

    // These methods use orders, which are identified by their indices.

    /// Returns the index of an order, and the number of the current loan. The order is kept from the first call on.
    #[allow(clippy::needless_pass_by_value)]
    fn order(
        &self,
        measure: &str,
        by_gpus: bool,
        limits: Vec<f64>,
        lead: f64,
        estimate_error: f64,
    ) -> PyResult<(usize, u64)> {
        let measure = match measure {
            "arrival" => Measure::Arrival,
            "duration" => Measure::Duration,
            "remaining" => Measure::Remaining,
            "attained" => Measure::Attained,
            "deadline" => Measure::Deadline,
            other => return Err(PyValueError::new_err(format!("no measure {other}"))),
        };
        if let Measure::Duration | Measure::Remaining = measure {
            Python::attach(|py| check_knowledge(py, self.knows_work))?;
        }
        let gpu_ns = |service: &f64| (service * 1e9).round() as i128;
        let spec = Spec {
            measure,
            by_gpus,
            limits: limits.iter().map(gpu_ns).collect(),
            lead: gpu_ns(&lead),
            estimate_error,
        };
        self.work(|view, inner| {
            let at = inner.kept.find(view, spec).map_err(CoreError::from)?;
            Ok((at, inner.loan))
        })
    }

    /// Returns a walk over the waiting jobs of an order.
    fn walk(slf: &Bound<'_, Self>, order: usize, loan: u64) -> PyResult<OrderWalk> {
        let walk = slf
            .get()
            .order_at(order, loan, |_, inner| Ok(inner.kept.queues[order].walk()))?;
        Ok(OrderWalk {
            view: slf.clone().unbind(),
            order,
            loan,
            state: Mutex::new((walk, FxHashSet::default())),
        })
    }

    /// Returns the first waiting job of an order.
    fn first(&self, order: usize, loan: u64) -> PyResult<Option<u32>> {
        self.order_at(order, loan, |_, inner| {
            Ok(inner.kept.queues[order].first().map(|job| job.0))
        })
    }

    /// Returns the running jobs in an order.
    fn running_in<'py>(
        &self,
        py: Python<'py>,
        order: usize,
        loan: u64,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.order_at(order, loan, |view, inner| {
            let ranks = inner.kept.queues[order].running(view);
            let ranks = ranks.map_err(CoreError::from)?;
            Ok(indices(py, ranks.iter().map(|rank| rank.job as usize)))
        })
    }

    /// Returns the running jobs that come after a job in an order, last job first.
    fn behind<'py>(
        &self,
        py: Python<'py>,
        order: usize,
        loan: u64,
        job: u32,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.order_at(order, loan, |view, inner| {
            let queue = &inner.kept.queues[order];
            let own = queue.rank(view, job_of(view, job)?);
            let own = own.map_err(CoreError::from)?;
            let ranks = queue.running(view).map_err(CoreError::from)?;
            let behind = ranks.iter().rev().take_while(|rank| **rank > own);
            Ok(indices(py, behind.map(|rank| rank.job as usize)))
        })
    }

    /// Returns whether a job comes before another in an order.
    fn is_before(&self, order: usize, loan: u64, job: u32, other: u32) -> PyResult<bool> {
        self.order_at(order, loan, |view, inner| {
            let queue = &inner.kept.queues[order];
            let own = queue.rank(view, job_of(view, job)?);
            let theirs = queue.rank(view, job_of(view, other)?);
            Ok(own.map_err(CoreError::from)? < theirs.map_err(CoreError::from)?)
        })
    }

    /// Returns the jobs that start, move or stop if jobs are admitted by number of GPUs, each with the type on which it
    /// is admitted, if any; see [`crate::orders::Queue::admit`].
    fn admit(&self, order: usize, loan: u64) -> PyResult<Vec<(u32, Option<usize>)>> {
        self.order_at(order, loan, |view, inner| {
            let changed = inner.kept.queues[order].admit(view);
            let changed = changed.map_err(CoreError::from)?.into_iter();
            Ok(changed
                .map(|(job, gpu_type)| (job.0, gpu_type.map(GpuTypeId::index)))
                .collect())
        })
    }

    /// Adds a timer to a plan, for the first instant at which a running job reaches its next limit in an order.
    fn wake(
        &self,
        py: Python<'_>,
        list: &Bound<'_, PyList>,
        order: usize,
        loan: u64,
        tag: u32,
    ) -> PyResult<()> {
        self.order_at(order, loan, |view, inner| {
            let spec = &inner.kept.queues[order].spec;
            let items: Vec<Bound<'_, PyAny>> = list.iter().collect();
            let actions = parse(view, &items)?.actions;
            let now = view.now();
            let stays = view.running().filter(|job| {
                let mut own = actions.iter().filter(|action| action.job == *job);
                !own.any(|action| action.verb == Verb::Preempt || action.gpus().is_some())
            });
            let stays = stays.filter_map(|job| {
                let since = view.run(job)?.only().progress_start.max(now);
                spec.next_limit(view, job, since)
            });
            let begins = actions.iter().filter_map(|action| {
                let gpus = action.gpus()?;
                let overhead = action.terms.overhead;
                let since = now + overhead.unwrap_or_else(|| view.overhead_at(action.job, gpus));
                spec.next_limit(view, action.job, since)
            });
            match stays.chain(begins).min() {
                Some(at) => list.append(("wake_at_ns", at.0, tag).into_pyobject(py)?),
                None => list.append(("cancel", tag).into_pyobject(py)?),
            }
        })
    }
}

impl PolicyView {
    /// Returns an allocation at the prices of this decision, and the index of its market. The market is kept from the
    /// first call on.
    pub(crate) fn allocation(&self, params: HadarParams) -> PyResult<(Allocation, (usize, u64))> {
        Python::attach(|py| check_knowledge(py, self.knows_work))?;
        self.with(|view, plan, inner| {
            if plan.is_none() {
                let message = "prices exist only during a decision: request them in `decide`";
                return Err(policy_error("prices", message));
            }
            let market = inner.kept.market(view, params).map_err(CoreError::from)?;
            let allocation = inner.kept.markets[market].allocation(view);
            Ok((allocation.map_err(CoreError::from)?, (market, inner.loan)))
        })
    }

    /// Gives a function access to a market of this decision, identified by its index and the number of the loan.
    pub(crate) fn market_at<R>(
        &self,
        (market, loan): (usize, u64),
        read: impl FnOnce(&ClusterView<'_>, &Market) -> PyResult<R>,
    ) -> PyResult<R> {
        self.work(|view, inner| match inner.kept.markets.get(market) {
            Some(market) if inner.loan == loan => read(view, market),
            _ => Err(policy_error(
                "prices",
                "these prices are valid only during the decision for which they were created",
            )),
        })
    }

    fn order_at<R>(
        &self,
        order: usize,
        loan: u64,
        read: impl FnOnce(&ClusterView<'_>, &mut Inner) -> PyResult<R>,
    ) -> PyResult<R> {
        self.work(|view, inner| {
            if inner.loan != loan || order >= inner.kept.queues.len() {
                return Err(policy_error(
                    "order",
                    "an order is valid only during the decision in which it was created",
                ));
            }
            read(view, inner)
        })
    }
}

/// A possible co-runner: its GPU type, its finish, its slowdown factor and the memory that it needs.
struct Stay {
    gpu_type: GpuTypeId,
    finish: SimTime,
    xi: f64,
    bytes: u64,
}

/// Returns a resident as it is after the given actions; `None` if it then holds no GPUs.
fn stay(view: &ClusterView<'_>, actions: &[Action], job: JobId) -> PyResult<Option<Stay>> {
    let action = actions.iter().find(|action| action.job == job);
    let given = action.and_then(Action::gpus);
    let run = view.run(job);
    let sub_batch = action.and_then(|action| action.terms.sub_batch);
    if given.is_none() && sub_batch.is_none() {
        let finish = view.finish(job).map_err(CoreError::from)?;
        return Ok(run.zip(finish).map(|(run, finish)| {
            let part = run.only();
            Stay {
                gpu_type: run.gpu_type(),
                finish,
                xi: part.xi,
                bytes: view.memory_bytes(job, part.sub_batch),
            }
        }));
    }
    // If its place or batch has changed, the job counts as running alone until the next decision.
    let Some(gpus) = given.or_else(|| run.map(|run| &run.only().gpus)) else {
        return Ok(None);
    };
    let batch = sub_batch.unwrap_or(0);
    let batch = if batch >= view.jobs().batch_size(job) {
        0
    } else {
        batch
    };
    let rate = view.rate_alone(job, gpus) / view.inflation_on(job, batch, gpus);
    let since = match (given, run) {
        (None, Some(run)) => run.only().progress_start.max(view.now()),
        _ => view.now() + view.overhead_at(job, gpus),
    };
    let span = view.span_at(job, rate).map_err(CoreError::from)?;
    let first = gpus.by_server()[0].server;
    Ok(Some(Stay {
        gpu_type: view.cluster().server(first).gpu_type,
        finish: since + span,
        xi: 1.0,
        bytes: view.memory_bytes(job, batch),
    }))
}

/// A walk over an order's waiting jobs, as a Python iterator.
#[pyclass(frozen, module = "gangline._core")]
pub(crate) struct OrderWalk {
    view: Py<PolicyView>,
    order: usize,
    loan: u64,
    state: Mutex<(Walk, FxHashSet<u32>)>,
}

#[pymethods]
impl OrderWalk {
    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__(&self) -> PyResult<Option<u32>> {
        let view = self.view.get();
        view.order_at(self.order, self.loan, |_, inner| {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            let (walk, skipped) = &mut *state;
            let next = walk.next(&inner.kept.queues[self.order], skipped);
            Ok(next.map(|(rank, _)| rank.job))
        })
    }

    /// Skips all further jobs of the same class as the given job.
    fn skip_like(&self, job: u32) -> PyResult<()> {
        let view = self.view.get();
        view.order_at(self.order, self.loan, |view, inner| {
            let class = inner.kept.alike.class(view, job_of(view, job)?);
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.1.insert(class);
            Ok(())
        })
    }
}

/// Returns the actions of a plan as a list, for [`parse`].
pub(crate) fn items<'py>(list: &Bound<'py, PyAny>) -> PyResult<Vec<Bound<'py, PyAny>>> {
    match list.cast::<PyList>() {
        Ok(list) => Ok(list.iter().collect()),
        Err(_) => Ok(list.cast::<PyTuple>()?.iter().collect()),
    }
}
