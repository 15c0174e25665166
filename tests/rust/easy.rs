//! EASY backfilling keeps its reservation. With exact estimates and placement by count, the head of the queue starts no
//! later than the shadow time that it had when it became the head.

use gangline_engine::ClusterView;
use gangline_model::{GpuTypeId, JobId, SimTime};
use gangline_policies::{ParamValue, Params, Services, build};
use gangline_testkit::conformance::{self, Scope};
use std::collections::BTreeMap;

/// Returns the first instant at which running jobs have released enough GPUs for the head.
fn shadow(view: &ClusterView<'_>, head: JobId) -> SimTime {
    let mut ends: Vec<(SimTime, u32)> = view
        .running()
        .map(|job| {
            let finish = view
                .finish(job)
                .expect("a view that knows")
                .expect("a running job");
            (finish, view.jobs().gpus(job))
        })
        .collect();
    ends.sort_unstable();
    let mut free = view.gpus_free(GpuTypeId(0));
    let mut time = view.now();
    for (end, gpus) in ends {
        if free >= view.jobs().gpus(head) {
            break;
        }
        free += gpus;
        time = end;
    }
    time
}

#[test]
fn the_head_never_waits_past_its_shadow_time() {
    let scope = Scope {
        types: 1,
        jobs: 60,
        has_trouble: false,
        ..Scope::default()
    };
    let params = Params::from([("placement".to_owned(), ParamValue::Str("count".to_owned()))]);
    let mut promises = 0;
    let mut backfilled = 0;
    for seed in 0..300 {
        let case = conformance::draw(seed, scope);
        let mut shadows: BTreeMap<JobId, SimTime> = BTreeMap::new();
        let mut policy = build("easy", &params, Services::default()).expect("valid parameters");
        let output = conformance::run_stepwise(&case, policy.as_mut(), |view| {
            if let Some(head) = view.first_waiting() {
                shadows.entry(head).or_insert_with(|| shadow(view, head));
                backfilled += usize::from(
                    view.running()
                        .any(|job| job > head && view.first_start(job) == Some(view.now())),
                );
            }
            Ok(())
        })
        .expect("the run ends");
        for (&head, time) in &shadows {
            let start = output.first_start_s[head.index()];
            assert!(
                start <= time.seconds(),
                "seed {seed}: job {head} at {start}, not {time:?}"
            );
        }
        promises += shadows.len();
    }
    assert!(
        promises > 500 && backfilled > 100,
        "{promises} promises, {backfilled} backfills"
    );
}

/// Estimates beyond the end of simulated time work like all others: no job starts twice, and none is lost.
#[test]
fn estimates_may_exceed_simulated_time() {
    for seed in 0..200 {
        let scope = Scope {
            jobs: 30,
            ..Scope::default()
        };
        for (sigma, extend) in [(25.0, 1.1), (60.0, 1.0), (1e300, 1e300)] {
            let params = Params::from([
                ("estimate_error".to_owned(), ParamValue::Float(sigma)),
                ("estimate_extend".to_owned(), ParamValue::Float(extend)),
            ]);
            let make = || build("easy", &params, Services::default()).expect("valid parameters");
            conformance::check(make, seed, scope, false)
                .unwrap_or_else(|error| panic!("sigma {sigma}: {error}"));
        }
    }
}
