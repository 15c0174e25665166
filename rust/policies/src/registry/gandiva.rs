//! Registry entry of the time-slicing policy.

use super::world::{PAIRS, SHARING};
use super::{PolicyInfo, Stops};
use crate::gandiva::{Gandiva, GandivaParams};
use crate::params::{ParamDefault, ParamKind, ParamSpec, flag, number, spec};
use crate::place::PlacementParams;

const GANDIVA: &[ParamSpec] = &[
    number("max_residents", ParamKind::Whole(1.0), 4.0).doc("maximum number of jobs that take turns on the same GPUs; with 1, the policy is a queue like fifo-skip"),
    number("quantum_s", ParamKind::Above(0.0), 60.0).unit("s").doc("length of a turn, in which \
         only time with progress counts; at least the run's checkpoint interval, if it has one")
    .outlasting_restarts(),
    spec("switch_s", ParamKind::Maybe(0.0), ParamDefault::None).unit("s").doc("time without \
         progress when a job resumes on GPUs where it ran before; none = the run's restart \
         overhead"),
    number("moves_per_event", ParamKind::Whole(0.0), 1.0).doc("maximum number of migrations when a job completes or a turn ends"),
    flag("pack", false).doc("whether two residents run together if this is faster than taking turns; the cluster \
         must state how much co-runners slow each other down, and the run must allow two jobs on \
         a GPU"),
    number("pack_gain", ParamKind::AtLeast(0.0), 1.0).doc("a pair of residents stays together if their relative speeds add up to more than this"),
    number("trial_s", ParamKind::Above(0.0), 60.0).unit("s").doc("length of the trial of a pair with unknown speeds; only time with progress counts"),
];

pub(super) const POLICIES: &[PolicyInfo] = &[PolicyInfo {
    name: "gandiva",
    summary: "time slicing: gangs of equal size take turns on shared GPUs; migration, optional packing",
    stops: Stops::AtTurnEnds,
    family: "time slicing",
    source: "Gandiva (OSDI 2018)",
    premises: &[SHARING.with("pack"), PAIRS.with("pack")],
    own: GANDIVA,
    make: |params, _| {
        Ok(Box::new(Gandiva::new(GandivaParams {
            max_residents: params.number("max_residents") as usize,
            quantum: params.period("quantum_s")?,
            switch: params.maybe_span("switch_s")?,
            moves_per_event: params.number("moves_per_event") as usize,
            pack: params.flag("pack"),
            pack_gain: params.number("pack_gain"),
            trial: params.period("trial_s")?,
            placement: PlacementParams::read(params),
        })))
    },
    ..PolicyInfo::BASE
}];
