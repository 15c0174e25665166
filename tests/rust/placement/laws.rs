//! Laws that hold in every world: checked by brute force on small worlds, and on random ones.

use super::{Dice, World, all_settings, demand, placer};
use gangline_model::{GpuSet, GpuTypeId, JobId};
use gangline_policies::place::{Demand, Level, Placer, Rule, Skew};
use proptest::prelude::*;
use std::collections::BTreeMap;

const TYPE: GpuTypeId = GpuTypeId(0);

/// Checks the properties that every answer has under any rule.
fn check_answer(world: &mut World, placer: &mut Placer, asked: &Demand) {
    let can = placer.can(&mut world.index, TYPE, asked);
    let found = placer.place(&mut world.index, TYPE, asked);
    let again = placer.place(&mut world.index, TYPE, asked);
    assert_eq!(found, again, "asking changes nothing");
    let Some(gpus) = found else {
        let total = world.index.pool(TYPE).free_total();
        let may_refuse = placer.may_refuse() || asked.max_level < Level::Network;
        assert!(
            may_refuse || total < asked.gpus,
            "refused with {total} free: {asked:?}"
        );
        return;
    };
    assert!(can);
    assert_eq!(gpus.gpus(), asked.gpus);
    for part in gpus.by_server() {
        let at = part.server.index();
        assert_eq!(world.cluster.server(part.server).gpu_type, TYPE);
        assert_eq!(
            part.mask & !world.masks[at].expect("up"),
            0,
            "slots are free"
        );
    }
    if placer.params().rule == Rule::Consolidate {
        let level = placer.params().max_level.min(asked.max_level);
        assert!(world.cluster.tier(&gpus) <= level);
    }
    assert_eq!(world.index.tier(&gpus), world.cluster.tier(&gpus));
    world.take(&gpus);
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 300,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]
    #[test]
    fn answers_are_whole_free_gangs(seed in any::<u64>()) {
        let mut dice = Dice::new(seed);
        let mut world = World::random(&mut dice, 20);
        let settings = all_settings();
        for _ in 0..30 {
            let mut placer = placer(&settings[dice.below(settings.len())]);
            let most = if dice.below(2) == 0 { 9 } else { 40 };
            let asked = Demand {
                job: JobId::new(dice.below(100)),
                gpus: 1 + dice.below(most) as u32,
                skew: if dice.below(2) == 0 { Skew::HIGH } else { Skew::LOW },
                starts: dice.below(3) as u32,
                max_level: dice.one_of(&[Level::Server, Level::Rack, Level::Network]),
            };
            check_answer(&mut world, &mut placer, &asked);
            world.assert_index_untouched();
            if dice.below(3) == 0 {
                let at = dice.below(world.masks.len());
                world.shuffle(&mut dice, at);
            }
        }
    }
}

/// Upper 1e-6 points of chi-square with 3, 5 and 14 degrees of freedom, computed separately with the inverse of the
/// incomplete gamma function.
const LIMIT_3: f64 = 30.67;
const LIMIT_5: f64 = 35.89;
const LIMIT_14: f64 = 54.64;

fn chi_square(counts: impl Iterator<Item = u32>, cells: u32, draws: u32) -> f64 {
    let expected = f64::from(draws) / f64::from(cells);
    let seen: Vec<u32> = counts.collect();
    let missing = f64::from(cells - seen.len() as u32) * expected;
    let excess = |count: u32| (f64::from(count) - expected).powi(2) / expected;
    missing + seen.into_iter().map(excess).sum::<f64>()
}

#[test]
fn random_is_uniform_over_sets_of_gpus() {
    let mut world = World::new(&[(0, 4, 0), (0, 4, 0), (0, 4, 1)], &[]);
    for (at, mask) in [0b1010, 0b0111, 0b1000].into_iter().enumerate() {
        world.set(at, mask);
    }
    let mut placer = placer(&[("placement", "random")]);
    // With 6 free GPUs there are 6 single GPUs and 15 pairs.
    for (gpus, cells, limit) in [(1, 6, LIMIT_5), (2, 15, LIMIT_14)] {
        let mut seen: BTreeMap<Vec<(u32, u64)>, u32> = BTreeMap::new();
        for draw in 0..30_000 {
            let asked = Demand {
                job: JobId(draw / 3),
                starts: draw % 3,
                ..demand(gpus)
            };
            let found = placer.place(&mut world.index, TYPE, &asked).expect("room");
            let parts = found
                .by_server()
                .iter()
                .map(|part| (part.server.0, part.mask))
                .collect();
            *seen.entry(parts).or_default() += 1;
        }
        let excess = chi_square(seen.into_values(), cells, 30_000);
        assert!(excess < limit, "{gpus} GPUs: {excess}");
    }
}

#[test]
fn random_server_is_uniform_over_servers_with_room() {
    let mut world = World::new(&[(0, 4, 0); 6], &[]);
    world.set(1, 0b0001);
    world.set(4, 0);
    let mut placer = placer(&[("placement", "random_server")]);
    let mut seen: BTreeMap<u32, u32> = BTreeMap::new();
    for draw in 0..30_000 {
        let asked = Demand {
            job: JobId(draw),
            ..demand(2)
        };
        let found = placer.place(&mut world.index, TYPE, &asked).expect("room");
        assert_eq!(found.by_server().len(), 1);
        *seen.entry(found.by_server()[0].server.0).or_default() += 1;
    }
    assert!(seen.keys().copied().eq([0, 2, 3, 5]));
    let excess = chi_square(seen.into_values(), 4, 30_000);
    assert!(excess < LIMIT_3, "{excess}");
    // No server has room for five GPUs, so any free GPUs are allowed.
    let found = placer
        .place(&mut world.index, TYPE, &demand(5))
        .expect("room");
    assert_eq!(found.gpus(), 5);
}

#[test]
fn draws_do_not_depend_on_earlier_queries() {
    for rule in ["random", "random_server"] {
        let mut world = World::new(&[(0, 8, 0); 16], &[]);
        let mut ask = |placer: &mut Placer, job: u32| {
            let asked = Demand {
                job: JobId(job),
                ..demand(3)
            };
            placer.place(&mut world.index, TYPE, &asked).expect("room")
        };
        let mut forward = placer(&[("placement", rule)]);
        let there: Vec<GpuSet> = (0..50).map(|job| ask(&mut forward, job)).collect();
        let mut backward = placer(&[("placement", rule)]);
        let mut back: Vec<GpuSet> = (0..50).rev().map(|job| ask(&mut backward, job)).collect();
        back.reverse();
        assert_eq!(there, back);
        assert!(
            there.iter().any(|gpus| *gpus != there[0]),
            "jobs draw differently"
        );
    }
}
