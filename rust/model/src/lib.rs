//! Descriptions of clusters, jobs, rates and plans.
//!
//! This crate contains only types and their checks. It uses no random numbers, threads, files or clocks. Everything
//! here is immutable after construction; the state that changes is in the engine.
#![forbid(unsafe_code)]

mod action;
mod cluster;
mod elastic;
mod error;
mod feasible;
mod gpu_set;
mod id;
mod inflation;
mod iteration;
mod job;
mod phases;
mod rate;
mod shape;
mod time;
mod words;

pub use action::{Action, ActionKind, Terms, TimerTag, Verb};
pub use cluster::{ClusterSpec, GpuType, Server, Tier};
pub use elastic::{Configuration, ElasticClass, ElasticModel, ElasticTable, Gradient, NoisePhase};
pub use error::ModelError;
pub use feasible::{Infeasible, InfeasibleReason};
pub use gpu_set::{GpuSet, ServerGpus, gpus_in, mask_of_lowest};
pub use id::{GpuTypeId, JobId, RackId, ServerId};
pub use inflation::{InflationClass, Inflations, IterationTimes};
pub use iteration::{StepFit, accumulated, overlapped};
pub use job::{Gang, JobColumns, JobFacts, JobTable, Label, Labels, Requests};
pub use phases::{GivenPhase, PhaseTable, Phases};
pub use rate::{CopyRates, Interference, Load, LocalityModel, RateTable, TierTable};
pub use shape::{Extent, Shape};
pub use time::{MAX_SECONDS, NANOS_PER_SECOND, SPAN_MAX, SimSpan, SimTime, span_of_work};
