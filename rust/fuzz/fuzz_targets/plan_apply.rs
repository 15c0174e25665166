//! Applies arbitrary plans: nothing panics, a refused plan changes nothing, and the invariants hold.
#![no_main]

use arbitrary::{Result, Unstructured};
use gangline_engine::{Advance, Engine, EngineError, Knowledge, Next, PolicyTraits, WakeOn};
use gangline_model::{Action, GpuSet, JobId, ServerId, SimSpan, SimTime, Terms, TimerTag};
use gangline_testkit::conformance::{self, Scope};
use libfuzzer_sys::fuzz_target;

fn gpus(u: &mut Unstructured) -> Result<GpuSet> {
    let mut set = GpuSet::new();
    for _ in 0..u.int_in_range(0..=3)? {
        let mask = if u.ratio(1, 16)? {
            u.arbitrary()?
        } else {
            u.int_in_range(0..=15)?
        };
        set.insert(ServerId(u.int_in_range(0..=6)?), mask);
    }
    Ok(set)
}

fn action(u: &mut Unstructured, engine: &Engine) -> Result<Action> {
    let view = engine.view().0;
    let known: Vec<JobId> = view.waiting().collect();
    let job = match known.first() {
        Some(&job) if u.ratio(1, 2)? => job,
        _ => JobId(u.int_in_range(0..=45)?),
    };
    let action = match u.int_in_range(0..=7)? {
        0 => Action::preempt(job),
        1 => Action::move_to(job, gpus(u)?),
        2 => Action::keep(job, Terms::default()),
        _ => Action::start(job, gpus(u)?),
    };
    if u.ratio(1, 2)? {
        return Ok(action);
    }
    let terms = Terms {
        sub_batch: u.arbitrary()?,
        accum: u.arbitrary()?,
        overhead: u.arbitrary::<Option<i64>>()?.map(SimSpan),
        quota: u.arbitrary()?,
    };
    Ok(action.with(terms).of_part(u.int_in_range(0..=3)?))
}

fn steps(u: &mut Unstructured) -> Result<()> {
    let scope = Scope {
        gangs_max: 4,
        ..Scope::default()
    };
    let case = conformance::draw(u64::from(u.arbitrary::<u16>()?), scope);
    let traits = PolicyTraits {
        wake_on: WakeOn::QUEUE | WakeOn::TIMER | WakeOn::ROUND,
        round: if u.ratio(1, 3)? {
            Some(SimSpan(7_000_000_000))
        } else {
            None
        },
        knowledge: Knowledge::Remaining,
        max_share: u.int_in_range(1..=2)?,
        mixes_types: u.arbitrary()?,
        forks: u.arbitrary()?,
        ..PolicyTraits::default()
    };
    let Ok(mut engine) = Engine::new(&case.world, case.config, traits) else {
        return Ok(());
    };
    while !u.is_empty() {
        match engine.advance() {
            Ok(Advance::Decision) => {}
            Ok(Advance::Done) | Err(EngineError::Stalled { .. }) => break,
            Ok(Advance::Time | Advance::Slice) => unreachable!("no time was given to stop at"),
            Err(error) => panic!("{error}"),
        }
        loop {
            let count = u.int_in_range(0..=3)?;
            let actions = (0..count)
                .map(|_| action(u, &engine))
                .collect::<Result<Vec<_>>>()?;
            let mut timers = Vec::new();
            if u.ratio(1, 4)? {
                let tag = TimerTag {
                    kind: u.int_in_range(0..=7)?,
                    id: u.int_in_range(0..=3)?,
                };
                let after = i64::from(u.arbitrary::<i32>()?);
                timers.push((tag, Some(SimTime(engine.now().0.saturating_add(after)))));
            }
            let before = format!("{:?}", engine.view());
            let Err(error) = engine.apply(actions, &timers, Next::Ask) else {
                break;
            };
            assert!(matches!(error, EngineError::Plan(_)), "{error}");
            assert_eq!(before, format!("{:?}", engine.view()), "{error}");
            engine.assert_invariants();
            if u.is_empty() {
                return Ok(());
            }
        }
        engine.assert_invariants();
    }
    let _whole = engine.output();
    Ok(())
}

fuzz_target!(|data: &[u8]| {
    let _ = steps(&mut Unstructured::new(data));
});
