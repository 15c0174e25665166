//! Second forms of policies that keep indexes: walks over all waiting jobs, written from the description. Some policies
//! have theirs inside, in checked builds: [`Services::plain`].

use gangline_engine::{
    Changes, ClusterView, Knowledge, Next, Plan, Policy, PolicyError, PolicyTraits,
};
use gangline_model::{GpuTypeId, JobId, SimSpan, SimTime, span_of_work};
use gangline_policies::baselines::Seen;
use gangline_policies::class::Places;
use gangline_policies::place::PlacementParams;
use gangline_policies::{POLICIES, ParamReader, Params, Services, find};
use std::collections::BTreeMap;

/// Policies whose plain form is here.
const HERE: [&str; 4] = ["fifo-skip", "sjf", "ssf", "easy"];

/// Names of all policies with a plain form, here or inside.
pub fn names() -> impl Iterator<Item = &'static str> {
    let policies = POLICIES.iter();
    let with_plain = policies.filter(|info| info.has_plain_walk || HERE.contains(&info.name));
    with_plain.map(|info| info.name)
}

/// The plain form of one of [`names`].
///
/// # Errors
/// [`PolicyError::Parameter`].
///
/// # Panics
/// If the policy has none.
pub fn build(name: &str, params: &Params) -> Result<Box<dyn Policy>, PolicyError> {
    if !HERE.contains(&name) {
        return gangline_policies::build(name, params, Services::plain());
    }
    let reader = ParamReader::new(name, find(name)?.parameters(), params)?;
    let plain = Plain {
        order: match name {
            "sjf" => Order::Duration,
            "ssf" => Order::Area,
            _ => Order::Arrival,
        },
        extend: (name == "easy").then(|| reader.number("estimate_extend")),
        seen: Seen::new(reader.number("estimate_error")),
        is_exact: false,
        places: Places::new(PlacementParams::read(&reader)),
        ends: BTreeMap::new(),
    };
    Ok(Box::new(plain))
}

#[derive(Clone, Copy, Debug)]
enum Order {
    Arrival,
    Duration,
    Area,
}

/// The queue in order: the job that fits starts, the others are skipped; under `easy` behind a reservation.
#[derive(Debug)]
struct Plain {
    order: Order,
    /// Under `easy`: how much longer an estimate gets that has run out.
    extend: Option<f64>,
    seen: Seen,
    /// Whether a job ends when its estimate says: no error is drawn, and no job changes its rate by itself.
    is_exact: bool,
    places: Places,
    /// Type and estimated finish of the running jobs, under `easy`.
    ends: BTreeMap<JobId, (GpuTypeId, SimTime)>,
}

/// The job at the head waits for so many GPUs of a type at an instant; the others then are extra.
#[derive(Clone, Copy)]
struct Reservation {
    gpu_type: GpuTypeId,
    time: SimTime,
    extra: u32,
}

const LATEST: SimTime = SimTime(SimTime::NEVER.0 - 1);

impl Plain {
    fn estimate(
        &self,
        view: &ClusterView<'_>,
        job: JobId,
        gpu_type: GpuTypeId,
    ) -> Result<SimSpan, PolicyError> {
        let run = span_of_work(view.remaining_work(job)?, view.base_rate(job, gpu_type));
        let run = self.seen.span(view, job, run);
        let span = view.overhead(job) + SimSpan(run.0.max(1));
        Ok(span.min(SimSpan(LATEST.0)))
    }

    /// Starts a job on the first of its types with room where `may` lets it.
    fn start(
        &mut self,
        view: &ClusterView<'_>,
        plan: &mut Plan<'_>,
        job: JobId,
        mut may: impl FnMut(&Self, GpuTypeId) -> Result<bool, PolicyError>,
    ) -> Result<bool, PolicyError> {
        let class = self.places.classes().of(job);
        for gpu_type in self.places.classes().get(class).types.clone() {
            let Some(gpus) = self.places.place_on(plan.free(), class, job, gpu_type) else {
                continue;
            };
            if !may(self, gpu_type)? {
                continue;
            }
            if self.extend.is_some() {
                let span = if self.is_exact {
                    let rate = view.rate_if(job, &gpus);
                    view.overhead(job) + span_of_work(view.remaining_work(job)?, rate)
                } else {
                    self.estimate(view, job, gpu_type)?
                };
                let end = (view.now() + span).min(LATEST);
                self.ends.insert(job, (gpu_type, end));
            }
            self.places.note_start(job);
            plan.take(&gpus);
            plan.start(job, gpus);
            return Ok(true);
        }
        Ok(false)
    }

    /// The first instant at which running jobs leave enough GPUs of a type, on the type where it comes first.
    fn reserve(&self, view: &ClusterView<'_>, plan: &Plan<'_>, head: JobId) -> Option<Reservation> {
        let need = view.jobs().gpus(head);
        let on = |&gpu_type: &GpuTypeId| {
            let free_at = |time: SimTime| {
                let ended = self.ends.iter().filter(|(_, own)| own.0 == gpu_type);
                let ended = ended.filter(|(_, own)| own.1 <= time);
                let gpus = ended.map(|(&job, _)| view.jobs().gpus(job)).sum::<u32>();
                plan.gpus_free(gpu_type) + gpus
            };
            let ends = self.ends.values().map(|own| own.1);
            let times = ends.filter(|&end| end > view.now()).chain([view.now()]);
            let time = times.filter(|&time| free_at(time) >= need).min()?;
            Some(Reservation {
                gpu_type,
                time,
                extra: free_at(time) - need,
            })
        };
        let class = self.places.classes().get(self.places.classes().of(head));
        // the first type of equal ones
        class.types.iter().filter_map(on).min_by_key(|one| one.time)
    }

    /// `easy`: the queue up to the first job without a place, and what may pass it.
    fn backfill(&mut self, view: &ClusterView<'_>, plan: &mut Plan<'_>) -> Result<(), PolicyError> {
        let mut waiting = view.waiting();
        let head = loop {
            let Some(job) = waiting.next() else {
                return Ok(());
            };
            if !self.start(view, plan, job, |_, _| Ok(true))? {
                break job;
            }
        };
        let mut reservation = self.reserve(view, plan, head);
        for job in waiting {
            let gpus = view.jobs().gpus(job);
            self.start(view, plan, job, |own, gpu_type| {
                let Some(promise) = reservation.as_mut().filter(|one| one.gpu_type == gpu_type)
                else {
                    return Ok(true);
                };
                let is_short = view.now() + own.estimate(view, job, gpu_type)? <= promise.time;
                if !is_short && gpus <= promise.extra {
                    promise.extra -= gpus;
                    return Ok(true);
                }
                Ok(is_short)
            })?;
        }
        Ok(())
    }

    fn update_ends(
        &mut self,
        view: &ClusterView<'_>,
        changes: &Changes,
        extend: f64,
    ) -> Result<(), PolicyError> {
        for job in changes.finished.iter().chain(&changes.requeued) {
            self.ends.remove(job);
        }
        let now = view.now();
        for (&job, (_, end)) in &mut self.ends {
            if self.is_exact {
                *end = view.finish(job)?.unwrap_or(*end);
            } else if *end <= now {
                let started = view.run(job).expect("a running job").started;
                let longer = (extend * (now - started).0 as f64).round() as i64;
                *end = (started + SimSpan(longer)).max(now + SimSpan(1));
                *end = (*end).min(LATEST);
            }
        }
        Ok(())
    }
}

impl Policy for Plain {
    fn traits(&self) -> PolicyTraits {
        let is_online = matches!(self.order, Order::Arrival) && self.extend.is_none();
        PolicyTraits {
            knowledge: if is_online {
                Knowledge::Online
            } else {
                Knowledge::Remaining
            },
            ..PolicyTraits::default()
        }
    }

    fn start(
        &mut self,
        view: &ClusterView<'_>,
        plan: &mut Plan<'_>,
    ) -> Result<Vec<JobId>, PolicyError> {
        let mut jobs = (0..view.jobs().len() as u32).map(JobId);
        self.is_exact = self.seen.is_exact() && jobs.all(|job| view.elastic(job).is_none());
        self.places.start(view, plan)
    }

    fn decide(
        &mut self,
        view: &ClusterView<'_>,
        changes: &Changes,
        plan: &mut Plan<'_>,
    ) -> Result<Next, PolicyError> {
        if let Some(extend) = self.extend {
            self.update_ends(view, changes, extend)?;
            self.backfill(view, plan)?;
            return Ok(Next::Ask);
        }
        let mut order = Vec::new();
        for job in view.waiting() {
            let gpus = i128::from(view.jobs().gpus(job));
            let length = match self.order {
                Order::Arrival => 0,
                Order::Duration => i128::from(self.seen.duration(view, job)?.0),
                Order::Area => i128::from(self.seen.duration(view, job)?.0) * gpus,
            };
            order.push((length, job));
        }
        order.sort_unstable();
        for (_, job) in order {
            Self::start(self, view, plan, job, |_, _| Ok(true))?;
        }
        Ok(Next::Ask)
    }
}
