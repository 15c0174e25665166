//! Adapts a `gangline.Policy` object to the engine's [`Policy`]. The adapter attaches to the Python interpreter once
//! per decision.

use crate::actions::parse;
use crate::changes::PolicyChanges;
use crate::view::{Loan, PolicyView, items};
use gangline_engine::{
    Cause, Changes, ClusterView, Counted, Knowledge, Next, Plan, Policy, PolicyError, PolicyTraits,
    Reason as Declared, WakeOn,
};
use gangline_model::{JobId, SimSpan, SimTime};
use pyo3::exceptions::PyValueError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::sync::{Arc, Mutex, PoisonError};

/// The reason that a policy in Python gives, with the text that its `why` returned.
pub(crate) static OWN_WORDS: Declared =
    Declared::new("own words", "what the policy's `why` returned", "{words}")
        .counts(Counted::Words);

/// Holds the user's own exception while the engine returns a typed error.
pub(crate) type Raised = Arc<Mutex<Option<PyErr>>>;

/// A policy written in Python.
pub(crate) struct PyPolicy {
    object: Py<PyAny>,
    /// The view of the policy, which is both a Rust and a Python object.
    view: Py<PolicyView>,
    python_view: Py<PyAny>,
    /// `Changes`, `Plan` and `read_answer` of `gangline.policies.protocol`.
    changes_class: Py<PyAny>,
    plan_class: Py<PyAny>,
    read_answer: Py<PyAny>,
    wake_on: WakeOn,
    round: Option<SimSpan>,
    knowledge: Knowledge,
    max_share: u32,
    mixes_types: bool,
    forks: bool,
    /// Whether the policy gives reasons.
    says_why: bool,
    /// The distinct texts that `why` has returned so far.
    words: Mutex<Vec<String>>,
    decisions: u64,
    raised: Raised,
}

/// A string with the job and the instant to which it refers, if any.
type Reason = (String, Option<u32>, Option<f64>);

impl PyPolicy {
    /// Creates the policy and reads the object's declarations. `names` are the names of the jobs, by index.
    pub(crate) fn new(
        object: &Bound<'_, PyAny>,
        raised: Raised,
        names: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let py = object.py();
        let protocol = py.import("gangline.policies.protocol")?;
        let mut wake_on = WakeOn::default();
        for name in object.getattr("wake_on")?.try_iter()? {
            let name: String = name?.extract()?;
            wake_on = wake_on
                | match name.as_str() {
                    "arrival" => WakeOn::ARRIVAL,
                    "completion" => WakeOn::COMPLETION,
                    "capacity" => WakeOn::CAPACITY,
                    "timer" => WakeOn::TIMER,
                    "round" => WakeOn::ROUND,
                    other => {
                        let message = format!(
                            "wake_on: expected arrival, completion, capacity, \
                             timer or round, got {other}"
                        );
                        return Err(PyValueError::new_err(message));
                    }
                };
        }
        let round: Option<f64> = object.getattr("round_s")?.extract()?;
        let round = round.map(SimSpan::from_seconds).transpose();
        let knowledge: String = object.getattr("knowledge")?.extract()?;
        let view = Bound::new(py, PolicyView::new(knowledge == "remaining"))?;
        let python_view = protocol.getattr("View")?.call1((&view, names))?;
        Ok(Self {
            object: object.clone().unbind(),
            view: view.unbind(),
            python_view: python_view.unbind(),
            changes_class: protocol.getattr("Changes")?.unbind(),
            plan_class: protocol.getattr("Plan")?.unbind(),
            read_answer: protocol.getattr("read_answer")?.unbind(),
            wake_on: if round.as_ref().is_ok_and(Option::is_some) {
                wake_on | WakeOn::ROUND
            } else {
                wake_on
            },
            round: round.map_err(|error| PyValueError::new_err(error.to_string()))?,
            knowledge: match knowledge.as_str() {
                "online" => Knowledge::Online,
                "remaining" => Knowledge::Remaining,
                other => {
                    let message = format!("knowledge: expected online or remaining, got {other}");
                    return Err(PyValueError::new_err(message));
                }
            },
            max_share: object.getattr("max_share")?.extract()?,
            mixes_types: object.getattr("mixes_types")?.extract()?,
            forks: object.getattr("forks")?.extract()?,
            says_why: says_why(object)?,
            words: Mutex::default(),
            decisions: 0,
            raised,
        })
    }

    /// Returns the texts of the policy's reasons, by index.
    pub(crate) fn words(self) -> Vec<String> {
        self.words
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether the policy's code has already failed.
    fn has_raised(&self) -> bool {
        let raised = self.raised.lock().unwrap_or_else(PoisonError::into_inner);
        raised.is_some()
    }

    fn ask_why(
        &self,
        py: Python<'_>,
        view: &ClusterView<'_>,
        job: JobId,
    ) -> PyResult<Option<Cause>> {
        let protocol = py.import("gangline.policies.protocol")?;
        let found: Option<Reason> = self.view.get().lend(view, Loan::Look, || {
            let object = self.object.bind(py);
            let answer = object.call_method1("why", (&self.python_view, job.0))?;
            let read = protocol.getattr("read_reason")?;
            read.call1((answer, view.jobs().len()))?.extract()
        })?;
        let Some((words, other, until_s)) = found else {
            return Ok(None);
        };
        let mut told = self.words.lock().unwrap_or_else(PoisonError::into_inner);
        let at = told
            .iter()
            .position(|one| *one == words)
            .unwrap_or_else(|| {
                told.push(words);
                told.len() - 1
            });
        let until = until_s.and_then(|until_s| SimTime::from_seconds(until_s).ok());
        let cause = Cause::of(&OWN_WORDS, other.map(JobId)).number(at as u32);
        Ok(Some(cause.until(until.unwrap_or(SimTime::NEVER))))
    }

    fn keep(&self, py: Python<'_>, error: PyErr, now_s: f64) -> PolicyError {
        let kind = self.object.bind(py).get_type().name();
        let note = format!(
            "raised by {} at simulated time {now_s} s, decision {}",
            kind.map_or_else(|_| "the policy".to_owned(), |name| name.to_string()),
            self.decisions
        );
        // A note is added to the user's own exception, which is otherwise unchanged.
        if let Err(failed) = error.value(py).call_method1("add_note", (note,)) {
            failed.write_unraisable(py, None);
        }
        let message = error.to_string();
        *self.raised.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
        PolicyError::Failed { message }
    }

    fn call(
        &self,
        py: Python<'_>,
        view: &ClusterView<'_>,
        changes: &Changes,
        plan: &mut Plan<'_>,
    ) -> PyResult<Next> {
        py.check_signals()?;
        let loan = Loan::Decide(changes, plan);
        let (orders, is_steady) = self.view.get().lend(view, loan, || {
            let core_changes = Bound::new(py, PolicyChanges::new(changes))?;
            let python_changes = self.changes_class.bind(py).call1((core_changes,))?;
            let object = self.object.bind(py);
            let answer = object.call_method1(
                intern!(py, "decide"),
                (self.python_view.bind(py), python_changes),
            )?;
            let (list, is_steady) = if answer.get_type().is(self.plan_class.bind(py)) {
                (answer.getattr(intern!(py, "actions"))?, false)
            } else {
                self.read_answer.bind(py).call1((answer,))?.extract()?
            };
            Ok((parse(view, &items(&list)?)?, is_steady))
        })?;
        let arms = orders.timers.iter().any(|(_, time)| time.is_some());
        if arms && !self.wake_on.intersects(WakeOn::TIMER) {
            let message = "`wake_at` has no effect: this policy's `wake_on` lacks \"timer\"";
            let facts = PyDict::new(py);
            facts.set_item("field", "wake_on")?;
            return Err(crate::error::raise(py, "PolicyError", message, &facts)?);
        }
        for action in orders.actions {
            plan.push(action);
        }
        for (tag, time) in orders.timers {
            match time {
                Some(time) => plan.wake_at(time, tag),
                None => plan.cancel(tag),
            }
        }
        Ok(if is_steady { Next::Steady } else { Next::Ask })
    }
}

impl Policy for PyPolicy {
    fn traits(&self) -> PolicyTraits {
        PolicyTraits {
            wake_on: self.wake_on,
            round: self.round,
            knowledge: self.knowledge,
            max_share: self.max_share,
            mixes_types: self.mixes_types,
            forks: self.forks,
            ..PolicyTraits::default()
        }
    }

    fn start(
        &mut self,
        view: &ClusterView<'_>,
        plan: &mut Plan<'_>,
    ) -> Result<Vec<JobId>, PolicyError> {
        Python::attach(|py| {
            let called = self.view.get().lend(view, Loan::Start(plan), || {
                let object = self.object.bind(py);
                let answer = object.call_method1("start", (self.python_view.bind(py),))?;
                let read = py
                    .import("gangline.policies.protocol")?
                    .getattr("read_start")?;
                let never: Vec<u32> = read.call1((answer, view.jobs().len()))?.extract()?;
                Ok(never.into_iter().map(JobId).collect())
            });
            called.map_err(|error| self.keep(py, error, view.now().seconds()))
        })
    }

    fn decide(
        &mut self,
        view: &ClusterView<'_>,
        changes: &Changes,
        plan: &mut Plan<'_>,
    ) -> Result<Next, PolicyError> {
        if self.has_raised() {
            let message = "its `why` raised an error".to_owned();
            return Err(PolicyError::Failed { message });
        }
        let next = Python::attach(|py| {
            self.call(py, view, changes, plan)
                .map_err(|error| self.keep(py, error, view.now().seconds()))
        })?;
        self.decisions += 1;
        Ok(next)
    }

    fn reasons(&self) -> Vec<&'static Declared> {
        vec![&OWN_WORDS]
    }

    /// If the object's `why` raises an error, the error is stored and ends the run at the next decision, or after the
    /// last decision.
    fn why(&self, view: &ClusterView<'_>, job: JobId) -> Option<Cause> {
        if !self.says_why || self.has_raised() {
            return None;
        }
        Python::attach(|py| {
            self.ask_why(py, view, job).unwrap_or_else(|error| {
                self.keep(py, error, view.now().seconds());
                None
            })
        })
    }
}

/// Returns whether a policy object defines `why`.
fn says_why(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    let base = object
        .py()
        .import("gangline.policies.protocol")?
        .getattr("Policy")?;
    let own = object.get_type().getattr("why");
    Ok(match own {
        Ok(own) => !own.is(&base.getattr("why")?),
        Err(_) => false,
    })
}
