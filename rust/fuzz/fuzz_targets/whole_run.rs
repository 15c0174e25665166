//! Runs a drawn world under a drawn policy twice: all invariants hold, and both runs have the same log.
#![no_main]

use arbitrary::{Result, Unstructured};
use gangline_engine::Failures;
use gangline_model::SimSpan;
use gangline_policies::{ParamKind, ParamValue, Params, PolicyInfo, Services};
use gangline_testkit::conformance::{self, Scope};
use gangline_testkit::policies;
use libfuzzer_sys::fuzz_target;

fn value(u: &mut Unstructured, kind: ParamKind) -> Result<ParamValue> {
    let number = f64::from(u.arbitrary::<u16>()?) / 64.0;
    Ok(match kind {
        ParamKind::Bool => ParamValue::Bool(u.arbitrary()?),
        ParamKind::AtLeast(least) => ParamValue::Float(least + number),
        ParamKind::Whole(least) | ParamKind::MaybeWhole(least) => {
            ParamValue::Float(least + number.floor())
        }
        ParamKind::Maybe(least) => ParamValue::Float(least + number),
        ParamKind::Above(bound) => ParamValue::Float(bound + number),
        ParamKind::Share | ParamKind::Fraction => ParamValue::Float(number.fract()),
        ParamKind::Text => ParamValue::Str("auto".to_owned()),
        ParamKind::Choice(words) => ParamValue::Str((*u.choose(words)?).to_owned()),
        ParamKind::Increasing => ParamValue::numbers([number, number * 2.0, number * 7.0]),
        ParamKind::Positives => ParamValue::numbers([number, 3.0, number]),
        ParamKind::NamedWeights => ParamValue::named([("default".to_owned(), 0.5 + number)]),
        ParamKind::NamedShares => ParamValue::named([("default".to_owned(), 0.5)]),
        ParamKind::Named(kind) => {
            ParamValue::Table([("default".to_owned(), value(u, *kind)?)].into())
        }
        ParamKind::Names => ParamValue::words(["default"]),
        ParamKind::Words(words) => ParamValue::words([*u.choose(words)?]),
        ParamKind::Tables(_) => ParamValue::List(Vec::new()),
    })
}

fn twice(u: &mut Unstructured) -> Result<()> {
    let known: Vec<&PolicyInfo> = policies().collect();
    let info = u.choose(&known)?;
    if info.solves() {
        return Ok(());
    }
    let scope = Scope {
        types: u.int_in_range(1..=3)?,
        jobs: u.int_in_range(1..=40)?,
        has_trouble: u.arbitrary()?,
        has_checkpoints: u.arbitrary()?,
        gangs_max: u.int_in_range(1..=12)?,
        has_elastic: u.arbitrary()?,
    };
    let mut case = conformance::draw(u64::from(u.arbitrary::<u32>()?), scope);
    let mut span = || u.int_in_range(0..=20_000_000_000_i64).map(SimSpan);
    (case.config.restart, case.config.first_start) = (span()?, span()?);
    case.config.check_invariants = true;
    case.config.max_events = Some(2_000);
    case.config.skip_rounds = u.arbitrary()?;
    case.config.max_share = u.int_in_range(1..=2)?;
    if u.ratio(1, 4)? {
        let mean = |u: &mut Unstructured| Ok(1.0 + f64::from(u.arbitrary::<u8>()?));
        case.config.failures = Failures::Random {
            mtbf_s: mean(u)?,
            mttr_s: mean(u)?,
        };
    }
    let mut params = Params::new();
    for spec in info.parameters() {
        if matches!(spec.name, "ga_population" | "ga_generations") {
            // The time of a genetic search grows with its population and generations, so both are small.
            let few = f64::from(u.int_in_range(2..=6_u8)?);
            params.insert(spec.name.to_owned(), ParamValue::Float(few));
        } else if u.ratio(1, 3)? {
            params.insert(spec.name.to_owned(), value(u, spec.kind)?);
        }
    }
    let (Ok(mut first), Ok(mut second)) = (
        info.build(&params, Services::default()),
        info.build(&params, Services::default()),
    ) else {
        return Ok(());
    };
    match (
        conformance::run(&case, first.as_mut()),
        conformance::run(&case, second.as_mut()),
    ) {
        (Ok(first), Ok(second)) => {
            assert_eq!(first.log_hash, second.log_hash);
            assert!(conformance::are_equal(&first, &second));
        }
        (first, second) => assert_eq!(first.err(), second.err()),
    }
    Ok(())
}

fuzz_target!(|data: &[u8]| {
    let _ = twice(&mut Unstructured::new(data));
});
