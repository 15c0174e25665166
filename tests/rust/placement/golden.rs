//! Answers worked out by hand, and parameters read from text.

use super::{World, demand, params, placer, read};
use gangline_engine::PolicyError;
use gangline_model::{GpuSet, GpuTypeId, JobColumns, JobId, JobTable, SimTime};
use gangline_policies::place::{
    Fit, Level, PlacementParams, Placer, RackChoice, Rule, Skew, SkewSource, Slots,
};

/// Returns two racks of two servers with 4 GPUs each. The free GPUs are 4 and 1 in the first rack, 2 and 3 in the
/// second.
fn world() -> World {
    let mut world = World::new(&[(0, 4, 0), (0, 4, 0), (0, 4, 1), (0, 4, 1)], &[]);
    for (at, mask) in [0b1111, 0b0100, 0b1010, 0b1101].into_iter().enumerate() {
        world.set(at, mask);
    }
    world
}

/// Returns servers and their numbers of GPUs, such as `[(0, 4), (1, 1)]`; empty means no place.
fn counts(gpus: Option<GpuSet>) -> Vec<(u32, u32)> {
    let gpus = gpus.unwrap_or_default();
    gpus.by_server()
        .iter()
        .map(|part| (part.server.0, part.mask.count_ones()))
        .collect()
}

fn place(world: &mut World, settings: &[(&str, &str)], gpus: u32) -> Vec<(u32, u32)> {
    counts(placer(settings).place(&mut world.index, GpuTypeId(0), &demand(gpus)))
}

type Table<'a> = &'a [(u32, &'a [(u32, u32)])];

fn check(settings: &[(&str, &str)], table: Table<'_>) {
    for (gpus, expected) in table {
        assert_eq!(
            place(&mut world(), settings, *gpus),
            *expected,
            "{settings:?} d = {gpus}"
        );
    }
}

const ALL: &[(u32, u32)] = &[(0, 4), (1, 1), (2, 2), (3, 3)];

#[test]
fn consolidate_best_fit() {
    check(
        &[],
        &[
            (1, &[(1, 1)]),
            (2, &[(2, 2)]),
            (3, &[(3, 3)]),
            (4, &[(0, 4)]),
            (5, &[(0, 4), (1, 1)]),
            (6, &[(0, 4), (1, 1), (2, 1)]),
            (10, ALL),
            (11, &[]),
        ],
    );
}

#[test]
fn consolidate_first_fit() {
    check(
        &[("fit", "first")],
        &[
            (1, &[(0, 1)]),
            (2, &[(0, 2)]),
            (3, &[(0, 3)]),
            (4, &[(0, 4)]),
            (5, &[(0, 4), (1, 1)]),
            (6, &[(0, 4), (1, 1), (2, 1)]),
            (10, ALL),
            (11, &[]),
        ],
    );
}

#[test]
fn yarn_first_fit() {
    check(
        &[("placement", "yarn"), ("fit", "first")],
        &[
            (1, &[(0, 1)]),
            (2, &[(0, 2)]),
            (3, &[(0, 3)]),
            (4, &[(0, 4)]),
            (5, &[(0, 4), (1, 1)]),
            (6, &[]),
            (10, &[]),
            (11, &[]),
        ],
    );
}

#[test]
fn spread_over_servers() {
    check(
        &[("placement", "spread")],
        &[
            (1, &[(0, 1)]),
            (2, &[(0, 1), (3, 1)]),
            (3, &[(0, 1), (2, 1), (3, 1)]),
            (4, &[(0, 1), (1, 1), (2, 1), (3, 1)]),
            (5, &[(0, 2), (1, 1), (2, 1), (3, 1)]),
            (6, &[(0, 2), (1, 1), (2, 1), (3, 2)]),
            (10, ALL),
            (11, &[]),
        ],
    );
}

#[test]
fn count_takes_the_lowest_gpus() {
    check(
        &[("placement", "count")],
        &[
            (1, &[(0, 1)]),
            (5, &[(0, 4), (1, 1)]),
            (8, &[(0, 4), (1, 1), (2, 2), (3, 1)]),
            (11, &[]),
        ],
    );
}

#[test]
fn levels_above_the_allowed_one_are_not_used() {
    check(&[("max_level", "server")], &[(4, &[(0, 4)]), (5, &[])]);
    check(
        &[("max_level", "rack")],
        &[(5, &[(0, 4), (1, 1)]), (6, &[])],
    );
    let narrowed = gangline_policies::place::Demand {
        max_level: Level::Rack,
        ..demand(6)
    };
    let mut world = world();
    assert_eq!(
        placer(&[]).place(&mut world.index, GpuTypeId(0), &narrowed),
        None
    );
}

#[test]
fn skew_waits_for_the_fewest_servers() {
    // A job with high skew and 5 GPUs goes to two servers of rack 0 (4 + 1). Rack 1 could hold it as 2 + 3, but rack 0
    // comes first in a tie.
    check(
        &[("placement", "skew")],
        &[(4, &[(0, 4)]), (5, &[(0, 4), (1, 1)]), (6, &[]), (11, &[])],
    );
    let low = gangline_policies::place::Demand {
        skew: Skew::LOW,
        ..demand(6)
    };
    let gpus = placer(&[("placement", "skew")]).place(&mut world().index, GpuTypeId(0), &low);
    assert_eq!(counts(gpus), [(0, 4), (1, 1), (2, 1)]);
}

#[test]
fn whole_servers_leave_the_rest_of_the_last_one() {
    let mut world = World::new(&[(0, 4, 0), (0, 4, 0), (0, 4, 0), (0, 4, 1)], &[]);
    world.set(0, 0b0111);
    let settings = [("placement", "whole_servers")];
    assert_eq!(place(&mut world, &settings, 6), [(1, 4), (2, 2)]);
    assert_eq!(place(&mut world, &settings, 9), []);
    let cross = [("placement", "whole_servers"), ("yarn_cross_rack", "true")];
    assert_eq!(place(&mut world, &cross, 9), [(1, 4), (2, 4), (3, 1)]);
    // `yarn` puts the rest where it fits best.
    assert_eq!(
        place(&mut world, &[("placement", "yarn")], 6),
        [(0, 2), (1, 4)]
    );
}

#[test]
fn fewest_servers_may_prefer_an_emptier_rack() {
    let servers = [(0, 8, 0), (0, 8, 0), (0, 8, 0), (0, 8, 1), (0, 8, 1)];
    let mut world = World::new(&servers, &[]);
    for at in 0..3 {
        world.set(at, 0b1111);
    }
    assert_eq!(place(&mut world, &[], 12), [(0, 4), (1, 4), (2, 4)]);
    let fewest = [("rack_choice", "fewest_servers")];
    assert_eq!(place(&mut world, &fewest, 12), [(3, 8), (4, 4)]);
}

#[test]
fn skew_by_name() {
    let labels = [
        "VGG16",
        "resnet50",
        "BERT-large",
        "AlexNet",
        "gpt2",
        "ResNeXt",
    ];
    let columns = JobColumns {
        arrival: vec![SimTime(0); 7],
        gpus: vec![1; 7],
        work: vec![1.0; 7],
        model: Some(vec![0, 1, 2, 3, 4, 5, u32::MAX]),
        model_labels: labels.map(str::to_owned).to_vec(),
        ..JobColumns::default()
    };
    let jobs = JobTable::new(columns).expect("a valid table");
    let names = &jobs.columns().model_labels;
    let placer = Placer::with_seed(params(&[("placement", "skew")]), 0, names);
    let high = [true, false, false, true, true, true, true];
    for (row, high) in high.into_iter().enumerate() {
        assert_eq!(placer.high_skew(&jobs, JobId::new(row)), high, "job {row}");
        assert_eq!(
            placer.demand(&jobs, JobId::new(row), 0).skew == Skew::HIGH,
            high
        );
    }
}

#[test]
fn defaults_are_those_of_the_page_on_placement() {
    let documented = PlacementParams {
        rule: Rule::Consolidate,
        fit: Fit::Best,
        max_level: Level::Network,
        slots: Slots::Lowest,
        rack_choice: RackChoice::BestFit,
        skew: SkewSource::Flags,
        skew_threshold: 0.3,
        skew_eps: 0.05,
        yarn_cross_rack: false,
    };
    assert_eq!(PlacementParams::default(), documented);
}

#[test]
fn bad_values_name_field_and_choices() {
    let message = |field: &str, value: &str| {
        let error = read(&[(field, value)]).expect_err("a bad value");
        assert!(matches!(error, PolicyError::Parameter { .. }));
        error.to_string()
    };
    assert_eq!(
        message("fit", "worst"),
        "fifo: fit = worst: expected one of best, first"
    );
    assert!(message("placement", "yern").contains("whole_servers"));
    assert!(message("max_level", "Rack").contains("server, rack, network"));
    assert!(message("skew_threshold", "1.5").contains("from 0 to 1"));
    assert!(message("skew_eps", "NaN").contains("from 0 to 1"));
    assert!(message("yarn_cross_rack", "yes").contains("true or false"));
}

#[test]
fn a_type_without_servers_has_no_place() {
    let mut world = World::new(&[(0, 4, 0)], &[]);
    for settings in super::all_settings() {
        let mut placer = placer(&settings);
        assert!(!placer.can(&mut world.index, GpuTypeId(1), &demand(1)));
        assert_eq!(
            placer.place(&mut world.index, GpuTypeId(1), &demand(1)),
            None
        );
    }
}
