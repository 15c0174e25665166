//! Building blocks that several policies use: indexes of waiting jobs, GPUs and servers, and small rules.
//!
//! The engine owns the state: waiting and running jobs, and free GPUs. A policy reads this state through its
//! `ClusterView`, and the `Plan` shows which GPUs are still free within a decision. A policy needs its own index only
//! for queries in an order that it defines:
//!
//! | question | index | used by |
//! |---|---|---|
//! | Which waiting job of a class comes first? | [`ByClass`]: a heap per class; only the first job can leave | `fifo-skip`, `sjf`, `sjf-strict`, `ssf`, `gandiva`, `yarn-cs`, policies with rounds or preemption |
//! | Which gangs are interchangeable, and where does one fit? | [`Places`]: the demand classes of the trace, and the placement rule | all except `hadar`, `hadare`, `pollux`, `optimus` and the policies in `sharing` |
//! | Which servers of a group have this much free capacity? | [`Servers`]: by GPU type, size and free GPUs | `hadar`, `hadare` |
//! | Which job's timer is due next? | [`JobTimers`]: one timer per job; only the earliest is set in the engine ([`Alarm`]) | policies with preemption, `gandiva` |
//! | Which running job is last in the order, and how many GPUs do the jobs behind a rank hold? | `preempt::incremental` | `srtf`, `srsf`, `las`, `gittins`, and policies that are built on these |
//! | How long does a job take, as the policy sees it? | [`Seen`] | policies that know durations |
//! | Who owns a job? On which GPU type does it run? | [`Owners`], [`GpuPick`] | `yarn-cs`, policies with rounds |
//! | Is a turn long enough for progress? | [`check_length`], [`Protection`] | policies that stop jobs |
//! | Why does a job wait? | [`why`]: reasons that several policies use | all |
//!
//! A job is started with a single call: [`Places::start_job`] finds GPUs and starts the job, and `plan.start` starts it
//! on given GPUs. Both calls mark the GPUs as taken for the rest of the decision and count the start.
//!
//! # Examples
//! The following code is the complete `sjf` policy. [`ByClass`] returns the first job of each class. If the first job
//! of a class does not fit, the class is done for this decision, because the number of free GPUs only decreases.
//! ```
//! use gangline_engine::{Changes, ClusterView, Knowledge, Next, Plan, Policy, PolicyError, PolicyTraits};
//! use gangline_model::{JobId, SimSpan};
//! use gangline_policies::kit::{ByClass, Places};
//! use std::{cmp::Reverse, collections::BinaryHeap};
//!
//! struct Shortest {
//!     places: Places, // Places::new(PlacementParams::default())
//!     waiting: ByClass<(SimSpan, JobId)>,
//! }
//!
//! impl Policy for Shortest {
//!     fn traits(&self) -> PolicyTraits {
//!         PolicyTraits { knowledge: Knowledge::Remaining, ..PolicyTraits::default() }
//!     }
//!     fn start(&mut self, view: &ClusterView<'_>, plan: &mut Plan<'_>) -> Result<Vec<JobId>, PolicyError> {
//!         let unplaceable = self.places.start(view, plan)?;
//!         self.waiting = ByClass::new(self.places.classes().len());
//!         Ok(unplaceable)
//!     }
//!     fn decide(&mut self, view: &ClusterView<'_>, changes: &Changes, plan: &mut Plan<'_>) -> Result<Next, PolicyError> {
//!         for &job in changes.requeued.iter().chain(&changes.arrived) {
//!             self.waiting.push(self.places.class_of(job), (view.duration(job)?, job));
//!         }
//!         let heads = self.waiting.busy().filter_map(|class| Some((self.waiting.first(class)?, class)));
//!         let mut heads: BinaryHeap<_> = heads.map(Reverse).collect();
//!         while let Some(Reverse(((_, job), class))) = heads.pop() {
//!             if self.places.start_job(plan, class, job) {
//!                 self.waiting.pop(class);
//!                 heads.extend(self.waiting.first(class).map(|next| Reverse((next, class))));
//!             }
//!         }
//!         Ok(Next::Ask)
//!     }
//! }
//! ```

mod owners;
mod periodic;
mod pick;
mod places;
mod queues;
mod seen;
pub(crate) mod servers;
mod timers;
mod total;
mod turns;
pub(crate) mod why;

pub(crate) use owners::Owners;
pub use owners::QueueBy;
pub(crate) use periodic::Periodic;
pub use pick::GpuPick;
pub use places::{Classes, DemandClass, Places, TypeList};
pub use queues::ByClass;
pub use seen::Seen;
pub(crate) use servers::{Counts, Servers};
pub(crate) use timers::Alarm;
pub use timers::JobTimers;
pub(crate) use total::Total;
pub use turns::Protection;
pub(crate) use turns::check_length;
