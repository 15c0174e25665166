//! Puts arbitrary numbers into every table: each is accepted or refused with a typed error, without a panic.
#![no_main]

use arbitrary::{Arbitrary, Result, Unstructured};
use gangline_engine::{Control, Engine, FailureRow, Failures, OnInfeasible, RunConfig};
use gangline_engine::{Silent, TimelineMode, World};
use gangline_model::{
    ClusterSpec, GpuType, GpuTypeId, JobColumns, JobTable, Label, Labels, RackId, RateTable,
    Requests, Server, SimSpan, SimTime,
};
use gangline_policies::{Params, Services, build};
use libfuzzer_sys::fuzz_target;

fn number(u: &mut Unstructured) -> Result<f64> {
    Ok(match u.int_in_range(0..=7)? {
        0 => u.arbitrary()?,
        1 => *u.choose(&[f64::NAN, f64::INFINITY, -1.0, 0.0, 1e-300, 1e300, 4e9])?,
        _ => f64::from(u.arbitrary::<u16>()?) / 8.0 + 0.125,
    })
}

fn column<T>(
    u: &mut Unstructured,
    rows: usize,
    mut value: impl FnMut(&mut Unstructured) -> Result<T>,
) -> Result<Option<Vec<T>>> {
    if u.ratio(2, 3)? {
        return Ok(None);
    }
    let rows = if u.ratio(1, 32)? { rows + 1 } else { rows };
    (0..rows)
        .map(|_| value(u))
        .collect::<Result<Vec<T>>>()
        .map(Some)
}

/// Returns a small number most of the time, and sometimes any number.
fn whole<T: for<'a> Arbitrary<'a> + From<u8>>(u: &mut Unstructured, most: u8) -> Result<T> {
    if u.ratio(1, 32)? {
        u.arbitrary()
    } else {
        Ok(u.int_in_range(0..=most)?.into())
    }
}

fn time(u: &mut Unstructured) -> Result<SimTime> {
    Ok(SimTime::from_seconds(number(u)?).unwrap_or(SimTime::NEVER))
}

fn table(u: &mut Unstructured) -> Result<JobColumns> {
    let rows = u.int_in_range(0..=12)?;
    let mut arrival = (0..rows).map(|_| time(u)).collect::<Result<Vec<_>>>()?;
    if !u.ratio(1, 16)? {
        arrival.sort_unstable();
    }
    Ok(JobColumns {
        arrival,
        gpus: (0..rows).map(|_| whole(u, 6)).collect::<Result<_>>()?,
        work: (0..rows).map(|_| number(u)).collect::<Result<_>>()?,
        ref_rate: column(u, rows, number)?,
        rate_class: column(u, rows, |u| whole(u, 2))?,
        allowed_types: column(u, rows, |u| whole(u, 3))?,
        memory_bytes: column(u, rows, |u| whole(u, 9))?,
        model: column(u, rows, |u| whole(u, 2))?,
        model_labels: vec!["a".to_owned(), "b".to_owned()],
        batch_size: column(u, rows, |u| whole(u, 9))?,
        weight: column(u, rows, number)?,
        deadline: column(u, rows, time)?,
        labels: Labels {
            vc: label(u, rows)?,
            qos: label(u, rows)?,
            ..Labels::default()
        },
        requests: Requests {
            nice: column(u, rows, |u| Ok(i32::from(whole::<u8>(u, 9)?)))?,
            ..Requests::default()
        },
    })
}

fn label(u: &mut Unstructured, rows: usize) -> Result<Label> {
    Ok(Label {
        codes: column(u, rows, |u| whole(u, 2))?,
        names: vec!["a".to_owned(), "b".to_owned()],
    })
}

fn failures(u: &mut Unstructured) -> Result<Failures> {
    Ok(match u.int_in_range(0..=3)? {
        0 => Failures::Random {
            mtbf_s: number(u)?,
            mttr_s: number(u)?,
        },
        1 => Failures::Table(vec![FailureRow {
            server: whole(u, 3)?,
            down: time(u)?,
            up: time(u)?,
        }]),
        _ => Failures::None,
    })
}

fn world(u: &mut Unstructured) -> Result<()> {
    let mut types = Vec::new();
    for index in 0..u.int_in_range(0..=2)? {
        let (speed, memory_bytes) = (number(u)?, whole(u, 16)?);
        types.push(GpuType {
            name: format!("t{index}"),
            memory_bytes,
            price_per_hour: 0.0,
            speed,
        });
    }
    let mut servers = Vec::new();
    for _ in 0..u.int_in_range(0..=4)? {
        let (gpu_type, rack) = (GpuTypeId(whole(u, 1)?), RackId(u.int_in_range(0..=3)?));
        servers.push(Server {
            gpu_type,
            gpus: whole(u, 8)?,
            rack,
        });
    }
    let columns = table(u)?;
    let (Ok(cluster), Ok(jobs)) = (ClusterSpec::new(types, servers), JobTable::new(columns)) else {
        return Ok(());
    };
    let rows = u.int_in_range(0..=3)? * cluster.gpu_types().len();
    let classes = (0..rows).map(|_| number(u)).collect::<Result<Vec<_>>>()?;
    let Ok(rates) = RateTable::from_speeds(&cluster).with_classes(classes, &jobs) else {
        return Ok(());
    };
    let span = |u: &mut Unstructured| Ok(SimSpan(time(u)?.0));
    let config = RunConfig {
        restart: span(u)?,
        first_start: span(u)?,
        checkpoint_interval: if u.arbitrary()? { Some(span(u)?) } else { None },
        memory_fixed_fraction: number(u)?.min(0.5),
        acc_cost: number(u)?,
        failures: failures(u)?,
        on_infeasible: OnInfeasible::Drop,
        timeline: if u.arbitrary()? {
            TimelineMode::Sample(span(u)?)
        } else {
            TimelineMode::Auto
        },
        check_invariants: true,
        max_events: Some(2000),
        ..RunConfig::default()
    };
    let world = World {
        cluster: cluster.into(),
        jobs: jobs.into(),
        rates: rates.into(),
    };
    let mut policy = build("fifo", &Params::new(), Services::default()).expect("fifo has defaults");
    let Ok(mut engine) = Engine::new(&world, config, policy.traits()) else {
        return Ok(());
    };
    if engine.start(policy.as_mut()).is_ok() {
        let _ = engine.run(policy.as_mut(), &Control::default(), &mut Silent);
        let _whole = engine.output();
    }
    Ok(())
}

fuzz_target!(|data: &[u8]| {
    let _ = world(&mut Unstructured::new(data));
});
