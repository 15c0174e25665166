//! The policy against full scans, decision by decision, on drawn worlds.

use super::{
    BenefitParams, FreePick, Gather, Key, PartnerTime, Sharing, SharingParams, SubBatchRule, scans,
};
use crate::baselines::Seen;
use gangline_engine::{Changes, ClusterView, Next, Plan, Policy, PolicyError, PolicyTraits};
use gangline_model::{JobColumns, JobId, JobTable, SimTime};
use gangline_testkit::conformance::{self, Case, Numbers, Scope};
use std::sync::Arc;

/// Asks both at every decision.
struct Watched {
    policy: Sharing,
    words: String,
    shared: u64,
}

impl Policy for Watched {
    fn traits(&self) -> PolicyTraits {
        self.policy.traits()
    }

    fn start(
        &mut self,
        view: &ClusterView<'_>,
        plan: &mut Plan<'_>,
    ) -> Result<Vec<JobId>, PolicyError> {
        self.policy.start(view, plan)
    }

    fn decide(
        &mut self,
        view: &ClusterView<'_>,
        changes: &Changes,
        plan: &mut Plan<'_>,
    ) -> Result<Next, PolicyError> {
        let (params, before) = (self.policy.params, self.policy.refused);
        let expected = scans::decide(view, &params, changes)?;
        let next = self.policy.decide(view, changes, plan)?;
        let at = format!("{} at {:?}", self.words, view.now());
        assert_eq!(plan.actions(), expected.actions, "{at}");
        assert_eq!(
            self.policy.refused - before,
            expected.refused,
            "{at}: refused"
        );
        let beside = |set: &gangline_model::GpuSet| {
            let mut servers = set.by_server().iter();
            servers.any(|one| one.mask & !view.free_mask(one.server) != 0)
        };
        let shared = plan.actions().iter().filter_map(|action| action.gpus());
        self.shared += shared.filter(|set| beside(set)).count() as u64;
        Ok(next)
    }
}

fn draw_params(name: &str, numbers: &mut Numbers) -> SharingParams {
    let partner_time = numbers.pick(&[
        PartnerTime::Exclusive,
        PartnerTime::Current,
        PartnerTime::Shared,
    ]);
    let benefit = BenefitParams {
        partner_time,
        min_sub_batch: numbers.pick(&[None, Some(1), Some(1), Some(8)]),
        sub_batch_rule: numbers.pick(&[SubBatchRule::Best, SubBatchRule::Largest]),
        restore_sub_batch: !numbers.once_in(3),
        max_probe: numbers.pick(&[1, 2, 256]),
        compare_types: numbers.once_in(2),
        compare_spread: numbers.once_in(2),
    };
    let block = numbers.once_in(4);
    let follows_rates = partner_time != PartnerTime::Exclusive;
    let has_rule = name == "sjf-bsbf";
    SharingParams {
        gather: numbers.pick(&[Gather::Cluster, Gather::ServerFirst]),
        free_pick: numbers.pick(&[FreePick::BestFit, FreePick::FewResidents]),
        key: numbers.pick(&[Key::Time, Key::GpuTime]),
        retests_all: block || (has_rule && follows_rates) || numbers.once_in(3),
        block,
        seen: Seen::new(numbers.pick(&[0.0, 0.0, 0.5])),
        benefit: has_rule.then_some(benefit),
    }
}

/// Jobs that arrive close together, some with equal durations: queues, and ties at every turn.
fn busy(case: &mut Case, numbers: &mut Numbers) {
    let JobColumns { arrival, .. } = case.world.jobs.columns().clone();
    let mut columns = case.world.jobs.columns().clone();
    let pace = numbers.pick(&[1, 10, 100]);
    columns.arrival = arrival.iter().map(|at| SimTime(at.0 / pace)).collect();
    let has_equals = numbers.once_in(3);
    columns.work = case
        .world
        .jobs
        .ids()
        .map(|job| {
            let work = case.world.jobs.work(job);
            if has_equals {
                (1.0 + work / 8.0).floor() * 8.0
            } else {
                work
            }
        })
        .collect();
    case.world.jobs = Arc::new(JobTable::new(columns).expect("a valid table"));
}

fn check_world(seed: u64, name: &str) -> u64 {
    let mut numbers = Numbers::new(seed.wrapping_add(31_000_000));
    let scope = Scope {
        jobs: numbers.pick(&[10, 40, 150]),
        has_trouble: numbers.once_in(2),
        has_checkpoints: false,
        ..Scope::default()
    };
    let mut case = conformance::draw(seed, scope);
    busy(&mut case, &mut numbers);
    let params = draw_params(name, &mut numbers);
    let mut watched = Watched {
        policy: Sharing::new(params),
        words: format!("seed {seed}, {params:?}"),
        shared: 0,
    };
    conformance::run(&case, &mut watched)
        .unwrap_or_else(|error| panic!("{}: {error}", watched.words));
    watched.shared
}

#[test]
fn ordered_search_is_the_full_scan() {
    for name in ["sjf-ffs", "sjf-bsbf"] {
        let shared: u64 = (0..300).map(|seed| check_world(seed, name)).sum();
        assert!(shared > 1_000, "{name} has shared GPUs only {shared} times");
    }
}
