//! What holds of the groups after every decision, on drawn worlds.

use super::{Gandiva, GandivaParams};
use crate::place::{PlacementParams, Rule};
use gangline_engine::{Advance, ClusterView, Engine, Phase, Policy};
use gangline_model::{GpuSet, JobId, SimSpan, SimTime};
use gangline_testkit::conformance::{self, Numbers, Scope};
use std::collections::BTreeSet;

fn seconds(seconds: u64) -> SimSpan {
    SimSpan(seconds as i64 * 1_000_000_000)
}

fn draw_params(numbers: &mut Numbers) -> GandivaParams {
    let rules = [
        Rule::Consolidate,
        Rule::Consolidate,
        Rule::Yarn,
        Rule::Skew,
        Rule::Spread,
    ];
    GandivaParams {
        max_residents: numbers.pick(&[1, 2, 4, 4, 7]),
        quantum: seconds(9 + numbers.below(20)),
        switch: numbers.once_in(2).then(|| seconds(1)),
        moves_per_event: numbers.pick(&[0, 1, 3]),
        pack: numbers.once_in(2),
        pack_gain: numbers.pick(&[1.0, 1.7]),
        trial: seconds(1 + numbers.below(20)),
        placement: PlacementParams {
            rule: numbers.pick(&rules),
            ..PlacementParams::default()
        },
    }
}

/// Every group that has residents, once.
fn slots(policy: &Gandiva, view: &ClusterView<'_>) -> Vec<u32> {
    let jobs = view.jobs().ids();
    let slots: BTreeSet<u32> = jobs.filter_map(|job| policy.groups.of(job)).collect();
    slots.into_iter().collect()
}

fn check_groups(policy: &Gandiva, view: &ClusterView<'_>) {
    let mut held = GpuSet::new();
    for slot in slots(policy, view) {
        let group = policy.groups.get(slot);
        let kind = policy.kinds[group.kind];
        assert!(group.residents.len() <= policy.params.max_residents);
        assert_eq!(group.gpus.gpus(), kind.gpus, "as many GPUs as the gang has");
        let most = if policy.params.pack { 2 } else { 1 };
        assert!((1..=most).contains(&group.running.len()), "a resident runs");
        for resident in &group.residents {
            assert_eq!(policy.groups.of(resident.job), Some(slot));
            assert_eq!(view.jobs().gpus(resident.job), kind.gpus);
            let runs = view.run(resident.job).map(gangline_engine::Run::gpus);
            let expected = group.is_running(resident.job).then_some(&group.gpus);
            assert_eq!(
                runs, expected,
                "the job whose turn it is runs, on the GPUs of the group"
            );
        }
        for part in group.gpus.by_server() {
            assert_eq!(held.mask_on(part.server) & part.mask, 0, "groups are apart");
            assert!(view.is_up(part.server));
            held.insert(part.server, part.mask);
        }
        let is_timed = group.has_waiting() || group.trial_end != SimTime::NEVER;
        assert_eq!(
            group.due() != SimTime::NEVER,
            is_timed,
            "a timer where it matters"
        );
        assert!(group.due() > view.now());
    }
}

/// No job is lost, and none waits while there is a group to join or to make.
fn check_queue(
    policy: &mut Gandiva,
    view: &ClusterView<'_>,
    free: &mut gangline_engine::FreeIndex,
) {
    for job in view.jobs().ids() {
        let has_group = policy.groups.of(job).is_some();
        match view.phase(job) {
            Phase::Pending | Phase::Finished | Phase::Dropped => assert!(!has_group),
            Phase::Running => assert!(has_group),
            Phase::Waiting if has_group => {}
            Phase::Waiting => check_in_vain(policy, view, free, job),
        }
    }
}

fn check_in_vain(
    policy: &mut Gandiva,
    view: &ClusterView<'_>,
    free: &mut gangline_engine::FreeIndex,
    job: JobId,
) {
    let class = policy.places.class_of(job);
    for &kind in &policy.kinds_of[class] {
        assert_eq!(policy.groups.most_open(kind), None, "it could join");
    }
    assert_eq!(
        policy.find_place(view, free, class, job),
        None,
        "it could have GPUs"
    );
}

/// The free GPUs, worked out anew.
fn free_of(view: &ClusterView<'_>) -> gangline_engine::FreeIndex {
    let servers = || (0..view.cluster().servers().len()).map(gangline_model::ServerId::new);
    let down = servers().filter(|&server| !view.is_up(server));
    let mut free = gangline_engine::FreeIndex::with_down(view.cluster(), down);
    for server in servers().filter(|&server| view.is_up(server)) {
        free.sync(server, view.free_mask(server));
    }
    free
}

#[test]
fn groups_are_sound_after_every_decision() {
    let mut joins = 0;
    for seed in 0..250 {
        let mut numbers = Numbers::new(seed + 5_000_000);
        let case = conformance::draw(
            seed,
            Scope {
                has_trouble: !numbers.once_in(3),
                ..Scope::default()
            },
        );
        let mut policy = Gandiva::new(draw_params(&mut numbers));
        let traits = policy.traits();
        let mut engine = Engine::new(&case.world, case.config.clone(), traits).expect("valid");
        engine.start(&mut policy).expect("it serves these worlds");
        while engine.advance().expect("the run ends") == Advance::Decision {
            engine.decide(&mut policy).expect("a sound plan");
            let view = engine.view().0;
            check_groups(&policy, &view);
            check_queue(&mut policy, &view, &mut free_of(&view));
        }
        joins += policy.counters()[0].1;
    }
    assert!(joins > 500, "these worlds are busy: {joins}");
}
