//! Arbitrary plans from outside: no panic, a refused plan changes nothing, the invariants hold.
#![no_main]

use arbitrary::{Result, Unstructured};
use gangline_engine::{Advance, Engine, EngineError, Knowledge, Next, PolicyTraits, WakeOn};
use gangline_model::{Action, GpuSet, JobId, ServerId, SimSpan, SimTime, TimerTag};
use gangline_policies::conformance::{self, Scope};
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
    Ok(match u.int_in_range(0..=7)? {
        0 => Action::Preempt { job },
        1 => Action::Move {
            job,
            gpus: gpus(u)?,
        },
        2 => Action::SetSubBatch {
            job,
            sub_batch: u.arbitrary()?,
        },
        3 => Action::Start {
            job,
            gpus: gpus(u)?,
            sub_batch: u.arbitrary()?,
        },
        _ => Action::Start {
            job,
            gpus: gpus(u)?,
            sub_batch: None,
        },
    })
}

fn steps(u: &mut Unstructured) -> Result<()> {
    let scope = Scope {
        gangs_max: 4,
        ..Scope::default()
    };
    let case = conformance::draw(u64::from(u.arbitrary::<u16>()?), scope);
    let traits = PolicyTraits {
        restart_per_gpu: SimSpan::ZERO,
        sets_overheads: false,
        watches_locality: false,
        wake_on: WakeOn::QUEUE | WakeOn::TIMER | WakeOn::ROUND,
        round: if u.ratio(1, 3)? {
            Some(SimSpan(7_000_000_000))
        } else {
            None
        },
        knowledge: Knowledge::Remaining,
        max_share: u.int_in_range(1..=2)?,
        mixes_types: u.arbitrary()?,
    };
    let Ok(mut engine) = Engine::new(&case.world, case.config, traits) else {
        return Ok(());
    };
    while !u.is_empty() {
        match engine.advance() {
            Ok(Advance::Decision) => {}
            Ok(Advance::Done) | Err(EngineError::Stalled { .. }) => break,
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
                timers.push((tag, SimTime(engine.now().0.saturating_add(after))));
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
    engine.output();
    Ok(())
}

fuzz_target!(|data: &[u8]| {
    let _ = steps(&mut Unstructured::new(data));
});
