//! A second implementation of every rule, written from its description with sorts, scans and copies.

use super::{Dice, World, all_settings, demand, params};
use gangline_model::{GpuTypeId, JobId, ServerId};
use gangline_policies::place::{
    Demand, Fit, Level, PlacementParams, Placer, RackChoice, Rule, Skew, Slots,
};
use gangline_rng::{Purpose, Stream};
use std::collections::{BTreeMap, BTreeSet};

const SEED: u64 = 11;

/// A server of the GPU type that is up.
#[derive(Clone, Debug)]
struct Row {
    id: usize,
    rack: u32,
    size: u32,
    slots: Vec<u32>,
}

impl Row {
    fn free(&self) -> u32 {
        self.slots.len() as u32
    }
}

/// Number of GPUs by server id.
type Counts = BTreeMap<usize, u32>;
type Gpus = BTreeSet<(usize, u32)>;

fn rows(world: &World, gpu_type: u32) -> Vec<Row> {
    let row = |(id, mask): (usize, &Option<u64>)| {
        let server = world.cluster.server(ServerId::new(id));
        let mask = (*mask)?;
        let slots = (0..64).filter(|slot| mask >> slot & 1 == 1).collect();
        (server.gpu_type.0 == gpu_type).then_some(Row {
            id,
            rack: server.rack.0,
            size: server.gpus,
            slots,
        })
    };
    world.masks.iter().enumerate().filter_map(row).collect()
}

fn total(rows: &[Row]) -> u32 {
    rows.iter().map(Row::free).sum()
}

fn largest(rows: &[Row]) -> u32 {
    rows.iter().map(|row| row.size).max().unwrap_or(0)
}

fn widest_rack(rows: &[Row]) -> u32 {
    let size = |(_, rack): &(u32, Vec<Row>)| rack.iter().map(|row| row.size).sum();
    by_rack(rows).iter().map(size).max().unwrap_or(0)
}

fn drawn_skew(dice: &mut Dice) -> Skew {
    match dice.below(4) {
        0 => Skew::LOW,
        1 => Skew { server: 0, rack: 3 },
        _ => Skew::HIGH,
    }
}

fn by_rack(rows: &[Row]) -> Vec<(u32, Vec<Row>)> {
    let mut racks: BTreeMap<u32, Vec<Row>> = BTreeMap::new();
    for row in rows {
        racks.entry(row.rack).or_default().push(row.clone());
    }
    racks.into_iter().collect()
}

fn one_server(rows: &[Row], d: u32, fit: Fit) -> Option<Counts> {
    let mut fits: Vec<&Row> = rows.iter().filter(|row| row.free() >= d).collect();
    if fit == Fit::Best {
        fits.sort_by_key(|row| row.free());
    }
    fits.first().map(|row| Counts::from([(row.id, d)]))
}

fn fill(rows: &[Row], d: u32, fit: Fit) -> Counts {
    let mut left = rows.to_vec();
    let mut counts = Counts::new();
    let mut rest = d;
    if fit == Fit::Best {
        left.sort_by_key(|row| std::cmp::Reverse(row.free()));
    }
    while rest > 0 {
        if fit == Fit::Best && rest < left[0].free() {
            left.sort_by_key(|row| row.id);
            counts.extend(one_server(&left, rest, Fit::Best).expect("one is large enough"));
            break;
        }
        let row = left.remove(0);
        let part = rest.min(row.free());
        if part > 0 {
            counts.insert(row.id, part);
        }
        rest -= part;
    }
    counts
}

fn one_rack(rows: &[Row], d: u32, p: &PlacementParams) -> Option<Counts> {
    let mut fits: Vec<Vec<Row>> = by_rack(rows).into_iter().map(|(_, rows)| rows).collect();
    fits.retain(|rows| total(rows) >= d);
    if p.fit == Fit::Best {
        fits.sort_by_key(|rows| total(rows));
        if p.rack_choice == RackChoice::FewestServers {
            fits.sort_by_key(|rows| fill(rows, d, Fit::Best).len());
        }
    }
    fits.first().map(|rows| fill(rows, d, p.fit))
}

fn consolidate(rows: &[Row], d: u32, level: Level, p: &PlacementParams) -> Option<Counts> {
    let mut found = one_server(rows, d, p.fit);
    if level >= Level::Rack {
        found = found.or_else(|| one_rack(rows, d, p));
    }
    if found.is_some() || level < Level::Network || total(rows) < d {
        return found;
    }
    let mut racks = by_rack(rows);
    if p.fit == Fit::Best {
        racks.sort_by_key(|(_, rows)| std::cmp::Reverse(total(rows)));
    }
    let mut counts = Counts::new();
    let mut rest = d;
    while rest >= total(&racks[0].1) {
        let (_, whole) = racks.remove(0);
        rest -= total(&whole);
        counts.extend(
            whole
                .iter()
                .filter(|row| row.free() > 0)
                .map(|row| (row.id, row.free())),
        );
        if rest == 0 {
            return Some(counts);
        }
    }
    let used: Vec<usize> = racks
        .iter()
        .flat_map(|(_, rows)| rows.iter().map(|r| r.id))
        .collect();
    let left: Vec<Row> = rows
        .iter()
        .filter(|row| used.contains(&row.id))
        .cloned()
        .collect();
    let last = one_server(&left, rest, p.fit).or_else(|| one_rack(&left, rest, p));
    counts.extend(last.expect("a rack has more than the rest"));
    Some(counts)
}

fn yarn(rows: &[Row], d: u32, p: &PlacementParams) -> Option<Counts> {
    let size = largest(rows);
    if d <= size {
        return one_server(rows, d, p.fit);
    }
    if size == 0 {
        return None;
    }
    let mut best: Option<((u32, u32), Counts)> = None;
    let scopes = if p.yarn_cross_rack {
        vec![(0, rows.to_vec())]
    } else {
        by_rack(rows)
    };
    for (_, rows) in scopes {
        let idle: Vec<usize> = rows
            .iter()
            .filter(|r| r.free() == size)
            .map(|r| r.id)
            .collect();
        let whole = if p.rule == Rule::Yarn {
            d / size
        } else {
            d.div_ceil(size)
        } as usize;
        if idle.len() < whole {
            continue;
        }
        let mut counts: Counts = idle[..whole].iter().map(|&id| (id, size)).collect();
        let rest = d - d.min(whole as u32 * size);
        if rest > 0 {
            let others: Vec<Row> = rows
                .iter()
                .filter(|row| !counts.contains_key(&row.id))
                .cloned()
                .collect();
            let Some(last) = one_server(&others, rest, p.fit) else {
                continue;
            };
            counts.extend(last);
        } else {
            let unused = whole as u32 * size - d;
            counts
                .entry(idle[whole - 1])
                .and_modify(|count| *count -= unused);
        }
        let key = if p.fit == Fit::Best {
            (idle.len() as u32, total(&rows))
        } else {
            (0, 0)
        };
        if best.as_ref().is_none_or(|(least, _)| key < *least) {
            best = Some((key, counts));
        }
    }
    best.map(|(_, counts)| counts)
}

/// Places one GPU after the other, as the description says.
fn spread(rows: &[Row], d: u32) -> Option<Counts> {
    if total(rows) < d {
        return None;
    }
    let mut counts = Counts::new();
    let mut given = 0;
    loop {
        let left = |row: &Row| row.free() - counts.get(&row.id).copied().unwrap_or(0);
        let mut sweep: Vec<(u32, usize)> = rows.iter().map(|row| (left(row), row.id)).collect();
        sweep.retain(|&(left, _)| left > 0);
        sweep.sort_by_key(|&(left, id)| (std::cmp::Reverse(left), id));
        for (_, id) in sweep {
            if given == d {
                return Some(counts);
            }
            *counts.entry(id).or_insert(0) += 1;
            given += 1;
        }
        if given == d {
            return Some(counts);
        }
    }
}

fn skew_high(rows: &[Row], size: u32, d: u32, fit: Fit) -> Option<Counts> {
    if d <= size {
        return one_server(rows, d, fit);
    }
    let racks = by_rack(rows);
    let capacity = |rows: &[Row]| rows.iter().map(|row| row.size).sum::<u32>();
    if racks.iter().any(|(_, rows)| capacity(rows) >= d) {
        let exact = |rows: &Vec<Row>| {
            total(rows) >= d && fill(rows, d, Fit::Best).len() as u32 == d.div_ceil(size)
        };
        let mut fits: Vec<Vec<Row>> = racks.into_iter().map(|(_, rows)| rows).collect();
        fits.retain(exact);
        if fit == Fit::Best {
            fits.sort_by_key(|rows| total(rows));
        }
        return fits.first().map(|rows| fill(rows, d, Fit::Best));
    }
    let mut idle: Vec<&(u32, Vec<Row>)> = racks
        .iter()
        .filter(|(_, rows)| total(rows) == capacity(rows))
        .collect();
    idle.sort_by_key(|(rack, rows)| (std::cmp::Reverse(capacity(rows)), *rack));
    let mut rest = d;
    let mut taken = Vec::new();
    for (rack, rows) in idle {
        if capacity(rows) > rest {
            break;
        }
        rest -= capacity(rows);
        taken.push(*rack);
    }
    if taken.is_empty() {
        return None;
    }
    let (whole, left): (Vec<Row>, Vec<Row>) = rows
        .iter()
        .cloned()
        .partition(|row| taken.contains(&row.rack));
    let mut counts: Counts = whole.iter().map(|row| (row.id, row.size)).collect();
    if rest > 0 {
        counts.extend(skew_high(&left, size, rest, fit)?);
    }
    Some(counts)
}

fn slots_of(row: &Row, count: u32, slots: Slots) -> Vec<u32> {
    let block = (0..7)
        .map(|power| 1 << power)
        .find(|&block| block >= count)
        .expect("up to 64");
    let mut starts = (0..64 / block).map(|index| index * block);
    let aligned = starts.find(|start| (0..block).all(|slot| row.slots.contains(&(start + slot))));
    match aligned.filter(|_| slots == Slots::Aligned) {
        Some(start) => (start..start + count).collect(),
        None => row.slots[..count as usize].to_vec(),
    }
}

/// Returns the GPUs of the gang according to the rule.
fn place(world: &World, gpu_type: u32, demand: &Demand, p: &PlacementParams) -> Option<Gpus> {
    let rows = rows(world, gpu_type);
    let d = demand.gpus;
    let mut every: Vec<(usize, u32)> = rows
        .iter()
        .flat_map(|row| row.slots.iter().map(|&slot| (row.id, slot)))
        .collect();
    let below = |n: usize, draw: u32| {
        let stream = Stream::new(SEED, Purpose::Placement);
        let id = u64::from(demand.job.0);
        stream.draw(id, demand.starts, draw).below(n as u64) as usize
    };
    let room: Vec<usize> = rows
        .iter()
        .filter(|row| row.free() >= d)
        .map(|row| row.id)
        .collect();
    let counts = match p.rule {
        Rule::Count => {
            return (every.len() >= d as usize).then(|| every.drain(..d as usize).collect());
        }
        Rule::RandomServer if !room.is_empty() => {
            Some(Counts::from([(room[below(room.len(), 0)], d)]))
        }
        Rule::Random | Rule::RandomServer => {
            let enough = every.len() >= d as usize;
            return enough.then(|| {
                (0..d)
                    .map(|draw| every.remove(below(every.len(), draw)))
                    .collect()
            });
        }
        Rule::Consolidate => consolidate(&rows, d, demand.max_level.min(p.max_level), p),
        Rule::Yarn | Rule::WholeServers => yarn(&rows, d, p),
        Rule::Spread => spread(&rows, d),
        Rule::Skew if demand.skew == Skew::HIGH => skew_high(&rows, largest(&rows), d, p.fit),
        Rule::Skew if demand.skew == Skew::LOW => consolidate(&rows, d, Level::Network, p),
        Rule::Skew if d > widest_rack(&rows) => skew_high(&rows, largest(&rows), d, p.fit),
        Rule::Skew => consolidate(&rows, d, Level::Rack, p),
        // Without a network all places are equally fast, so the narrowest wins.
        Rule::BestSpeed => consolidate(&rows, d, Level::Network, p),
    }?;
    let row = |id: &usize| {
        rows.iter()
            .find(|row| row.id == *id)
            .expect("a server of the type")
    };
    let slots = |(id, &count): (&usize, &u32)| {
        slots_of(row(id), count, p.slots)
            .into_iter()
            .map(|slot| (*id, slot))
            .collect::<Vec<_>>()
    };
    Some(counts.iter().flat_map(slots).collect())
}

fn compare(world: &mut World, placer: &mut Placer, gpu_type: u32, demand: &Demand) -> bool {
    let id = GpuTypeId(gpu_type);
    let can = placer.can(&mut world.index, id, demand);
    let found = placer.place(&mut world.index, id, demand);
    let expected = place(world, gpu_type, demand, placer.params());
    let gpus: Option<Gpus> = found.as_ref().map(|gpus| {
        let parts = gpus.by_server().iter();
        parts
            .flat_map(|part| {
                let slots = (0..64).filter(|slot| part.mask >> slot & 1 == 1);
                slots.map(|slot| (part.server.index(), slot))
            })
            .collect()
    });
    assert_eq!(
        gpus,
        expected,
        "{demand:?} {:?} {:?}",
        placer.params(),
        rows(world, gpu_type)
    );
    assert!(
        can || found.is_none(),
        "can() refused what the rule places: {demand:?}"
    );
    found.is_some()
}

#[test]
fn every_rule_equals_its_plain_form_on_random_worlds() {
    let mut dice = Dice::new(1);
    let settings = all_settings();
    let mut successes = vec![0; settings.len()];
    for _ in 0..1500 {
        let mut world = World::random(&mut dice, 24);
        let widest = world.cluster.gpus_total() as usize;
        for (row, settings) in settings.iter().enumerate() {
            let mut placer = Placer::with_seed(params(settings), SEED, &[]);
            let narrow = dice.below(10);
            let asked = Demand {
                job: JobId::new(dice.below(1000)),
                gpus: 1 + dice.below(if narrow < 5 { 10 } else { widest }) as u32,
                skew: drawn_skew(&mut dice),
                starts: dice.below(4) as u32,
                max_level: dice.one_of(&[Level::Server, Level::Rack, Level::Network]),
            };
            let gpu_type = u32::from(dice.below(8) == 0);
            successes[row] += u32::from(compare(&mut world, &mut placer, gpu_type, &asked));
        }
        world.assert_index_untouched();
    }
    // A comparison of refusals alone would prove nothing.
    assert!(successes.iter().all(|&count| count > 300), "{successes:?}");
}

/// A single world changes over time. Structures that earlier queries built lazily must stay up to date.
#[test]
fn every_rule_equals_its_plain_form_while_a_world_changes() {
    let mut dice = Dice::new(2);
    let settings = all_settings();
    let mut placers: Vec<Placer> = settings
        .iter()
        .map(|settings| Placer::with_seed(params(settings), SEED, &[]))
        .collect();
    for _ in 0..12 {
        let mut world = World::random(&mut dice, 40);
        for _ in 0..400 {
            let at = dice.below(world.masks.len());
            world.shuffle(&mut dice, at);
            let row = dice.below(placers.len());
            let gpus = 1 + dice.below(world.cluster.gpus_total() as usize) as u32;
            let asked = Demand {
                skew: drawn_skew(&mut dice),
                ..demand(gpus)
            };
            compare(&mut world, &mut placers[row], 0, &asked);
        }
        world.assert_index_untouched();
    }
}

/// The gangs are larger than every rack, so jobs with high skew take idle racks one after the other.
#[test]
fn skew_over_several_racks_equals_its_plain_form() {
    let mut dice = Dice::new(3);
    let mut successes = 0;
    for fit in ["best", "first"] {
        let settings = [("placement", "skew"), ("fit", fit)];
        let mut placer = Placer::with_seed(params(&settings), SEED, &[]);
        for _ in 0..4000 {
            let racks = 2 + dice.below(5);
            let servers: Vec<(u32, u32, u32)> = (0..racks * 2)
                .map(|_| (0, dice.one_of(&[4, 4, 8]), dice.below(racks) as u32))
                .collect();
            let mut world = World::new(&servers, &[]);
            for at in 0..servers.len() {
                if dice.below(6) == 0 {
                    world.shuffle(&mut dice, at);
                }
            }
            let most = world.index.pool(GpuTypeId(0)).rack_up_max();
            let gpus = most + 1 + dice.below(24) as u32;
            successes += u32::from(compare(&mut world, &mut placer, 0, &demand(gpus)));
            world.assert_index_untouched();
        }
    }
    assert!(successes > 1000, "{successes}");
}
