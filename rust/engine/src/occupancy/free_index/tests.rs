//! Compares the index with a recount after random changes, and each query with a scan.

use super::*;
use gangline_model::{GpuType, RackId, Server};
use gangline_rng::{Purpose, Stream};

/// Random numbers for these tests, independent of the code under test.
struct Dice {
    stream: Stream,
    thrown: u32,
}

impl Dice {
    fn new(seed: u64) -> Self {
        Self {
            stream: Stream::new(seed, Purpose::Extra),
            thrown: 0,
        }
    }

    fn below(&mut self, n: usize) -> usize {
        self.thrown += 1;
        self.stream.draw(0, self.thrown, 0).below(n as u64) as usize
    }
}

fn gpu_type(name: &str) -> GpuType {
    GpuType {
        name: name.into(),
        memory_bytes: u64::MAX,
        price_per_hour: 0.0,
        speed: 1.0,
    }
}

/// Creates a cluster with two GPU types and `racks` racks, whose servers have random `sizes`. Servers are listed rack
/// by rack if `sorted`.
fn cluster(
    dice: &mut Dice,
    count: usize,
    racks: usize,
    sizes: &[u32],
    sorted: bool,
) -> ClusterSpec {
    let mut servers: Vec<Server> = (0..count)
        .map(|_| Server {
            gpu_type: GpuTypeId::new(dice.below(4) / 3),
            gpus: sizes[dice.below(sizes.len())],
            rack: RackId::new(dice.below(racks)),
        })
        .collect();
    if sorted {
        servers.sort_by_key(|server| server.rack);
    }
    ClusterSpec::new(vec![gpu_type("a"), gpu_type("b")], servers).expect("a valid cluster")
}

/// Makes every query once and compares the answers with scans over the free counts. Afterwards, every structure that is
/// built on first use exists.
fn compare_with_scans(pool: &mut TypePool, gpus: u32) {
    let free: Vec<u32> = (0..pool.servers().len())
        .map(|at| pool.mask(at).count_ones())
        .collect();
    let fits = |at: &usize| free[*at] >= gpus;
    let all = || 0..free.len();
    assert_eq!(
        pool.best_fit(gpus),
        all().filter(fits).min_by_key(|&at| (free[at], at))
    );
    assert_eq!(pool.first_fit(gpus), all().find(fits));
    assert_eq!(
        pool.next_free(free.len() / 2),
        (free.len() / 2..free.len()).find(|&at| free[at] > 0)
    );
    assert_eq!(
        pool.server_free_max(),
        free.iter().copied().max().unwrap_or(0)
    );
    assert_eq!(
        pool.count_at_least(gpus) as usize,
        all().filter(fits).count()
    );
    let index = pool.count_at_least(gpus) / 2;
    assert_eq!(
        pool.nth_at_least(gpus, index),
        all().filter(fits).nth(index as usize)
    );
    let units: Vec<(usize, u32)> = all()
        .flat_map(|at| (0..free[at]).map(move |unit| (at, unit)))
        .collect();
    for index in [
        0,
        units.len() / 3,
        units.len().saturating_sub(1),
        units.len(),
    ] {
        assert_eq!(pool.nth_free(index as u32), units.get(index).copied());
    }
    let mut order: Vec<(usize, u32)> = all().map(|at| (at, free[at])).collect();
    order.retain(|&(_, free)| free > 0);
    order.sort_by_key(|&(at, free)| (std::cmp::Reverse(free), at));
    assert!(pool.all_servers().descending().eq(order.iter().copied()));
    compare_racks_with_scans(pool, &free, gpus);
}

fn compare_racks_with_scans(pool: &mut TypePool, free: &[u32], gpus: u32) {
    let racks = pool.racks();
    let mut of: Vec<Vec<usize>> = vec![Vec::new(); racks];
    for at in 0..free.len() {
        of[pool.rack_of(at)].push(at);
    }
    let total: Vec<u32> = of
        .iter()
        .map(|servers| servers.iter().map(|&at| free[at]).sum())
        .collect();
    let fits = |rack: &usize| total[*rack] >= gpus;
    let best = (0..racks)
        .filter(fits)
        .min_by_key(|&rack| (total[rack], rack));
    assert_eq!(pool.rack_best_fit(gpus), best);
    assert_eq!(pool.rack_first_fit(gpus, 0), (0..racks).find(fits));
    assert_eq!(
        pool.rack_first_fit(gpus, racks / 2),
        (racks / 2..racks).find(fits)
    );
    let most = (0..racks).min_by_key(|&rack| (std::cmp::Reverse(total[rack]), rack));
    assert_eq!(pool.rack_most_free(), most.map(|rack| (rack, total[rack])));
    if let Some(best) = best {
        let later = (0..racks).filter(|&rack| (total[rack], rack) > (total[best], best));
        assert_eq!(
            pool.rack_after(best),
            later.min_by_key(|&rack| (total[rack], rack))
        );
    }
    for (rack, servers) in of.iter().enumerate() {
        assert_eq!(pool.rack_free(rack), total[rack]);
        let view = pool.rack_servers(rack);
        let enough = servers.iter().copied().filter(|&at| free[at] >= gpus);
        let best = enough
            .clone()
            .min_by_key(|&at| (free[at], at))
            .map(|at| (at, free[at]));
        assert_eq!(view.best_fit(gpus), best);
        assert!(view.at_least(gpus).eq(enough.map(|at| (at, free[at]))));
        assert_eq!(
            view.free_max(),
            servers.iter().map(|&at| free[at]).max().unwrap_or(0)
        );
        let exact = servers.iter().copied().filter(|&at| free[at] == gpus);
        if (gpus as usize) < pool.buckets.len() {
            assert!(pool.rack_servers(rack).with_free(gpus).eq(exact));
        }
    }
    compare_whole_with_scans(pool, free, &of, &total);
}

fn compare_whole_with_scans(pool: &mut TypePool, free: &[u32], of: &[Vec<usize>], total: &[u32]) {
    let size = pool.server_gpus_max();
    if size == 0 {
        assert_eq!(pool.rack_whole_first(1, 0), None);
        return;
    }
    let count = |rack: usize| of[rack].iter().filter(|&&at| free[at] == size).count() as u32;
    for (whole, rest) in [
        (1, 0),
        (1, size / 2),
        (1, size - 1),
        (2, 1.min(size - 1)),
        (3, 0),
    ] {
        let works = |rack: &usize| {
            let others = of[*rack].iter().filter(|&&at| free[at] >= rest).count() as u32;
            count(*rack) >= whole && (rest == 0 || others > whole)
        };
        let racks = || (0..of.len()).filter(works);
        assert_eq!(pool.rack_whole_first(whole, rest), racks().next());
        let best = racks().min_by_key(|&rack| (count(rack), total[rack], rack));
        assert_eq!(pool.rack_whole_best(whole, rest), best);
    }
    assert_eq!(pool.whole_total(), (0..of.len()).map(count).sum());
}

/// Makes one random change to the index, and the same change to `masks`, a simple copy of the state.
fn step(index: &mut FreeIndex, cluster: &ClusterSpec, dice: &mut Dice, masks: &mut [Option<u64>]) {
    let at = dice.below(masks.len());
    let server = ServerId::new(at);
    let full = cluster.full_mask(server);
    match (dice.below(20), masks[at]) {
        (0, Some(_)) => {
            index.set_up(server, false);
            masks[at] = None;
        }
        (_, None) => {
            index.set_up(server, true);
            masks[at] = Some(full);
        }
        (way, Some(mask)) => {
            let drawn = (dice.below(1 << 32) as u64) << 32 | dice.below(1 << 32) as u64;
            let mask = match way % 4 {
                0 => full,
                1 => mask & drawn,
                2 => mask | drawn & full,
                _ => mask & mask.wrapping_sub(1),
            };
            index.set_free_mask(server, mask);
            masks[at] = Some(mask);
        }
    }
    assert_eq!(index.free_mask(server), masks[at].unwrap_or(0));
}

#[test]
fn equals_a_recount_after_random_changes() {
    // Each world has (servers, racks, sizes, listed rack by rack, changes between comparisons).
    let worlds: [(usize, usize, &[u32], bool, usize); 8] = [
        (1, 1, &[4], true, 3),
        (6, 1, &[8], true, 5),
        (12, 4, &[4], true, 7),
        (12, 4, &[4, 8, 2], false, 7),
        (40, 6, &[64, 63, 1], false, 37),
        (90, 12, &[8], true, 61),
        (150, 150, &[8, 4], false, 151),
        (300, 7, &[8, 16], true, 211),
    ];
    for (world, (servers, racks, sizes, sorted, gap)) in worlds.into_iter().enumerate() {
        let mut dice = Dice::new(world as u64);
        let cluster = cluster(&mut dice, servers, racks, sizes, sorted);
        let mut index = FreeIndex::new(&cluster);
        let mut masks: Vec<Option<u64>> = (0..servers)
            .map(|at| Some(cluster.full_mask(ServerId::new(at))))
            .collect();
        for changes in 0..12_500 {
            step(&mut index, &cluster, &mut dice, &mut masks);
            if changes % gap == 0 {
                let gpus = 1 + dice.below(sizes.iter().max().copied().unwrap_or(1) as usize + 2);
                for pool in &mut index.pools {
                    // The structures are first built after 3000 changes. From then on, the index must keep them up to
                    // date.
                    if changes > 3000 {
                        compare_with_scans(pool, gpus as u32);
                    }
                    pool.assert_consistent();
                }
                index.changes.clear();
            }
        }
    }
}

#[test]
fn rollback_leaves_no_trace() {
    let mut dice = Dice::new(77);
    let cluster = cluster(&mut dice, 30, 5, &[8, 4], false);
    let mut index = FreeIndex::new(&cluster);
    for round in 0..300 {
        for pool in &mut index.pools {
            compare_with_scans(pool, 1 + round % 9);
        }
        let before: Vec<u64> = (0..30)
            .map(|at| index.free_mask(ServerId::new(at)))
            .collect();
        let outer = index.mark();
        for _ in 0..dice.below(20) {
            let server = ServerId::new(dice.below(30));
            let mask = dice.below(256) as u64 & cluster.full_mask(server);
            index.set_free_mask(server, mask);
        }
        let inner = index.mark();
        let middle: Vec<u64> = (0..30)
            .map(|at| index.free_mask(ServerId::new(at)))
            .collect();
        for at in 0..30 {
            index.set_free_mask(ServerId(at), 0);
        }
        index.rollback(inner);
        assert!((0..30).all(|at| index.free_mask(ServerId::new(at)) == middle[at]));
        if round % 3 == 0 {
            index.rollback(outer);
            assert!((0..30).all(|at| index.free_mask(ServerId::new(at)) == before[at]));
        }
        index.pools.iter().for_each(TypePool::assert_consistent);
    }
}

#[test]
fn tier_is_that_of_the_cluster() {
    let mut dice = Dice::new(5);
    let cluster = cluster(&mut dice, 40, 6, &[8], false);
    let index = FreeIndex::new(&cluster);
    for _ in 0..500 {
        let gpu_type = index.type_of(ServerId::new(dice.below(40)));
        let servers = index.pool(gpu_type).servers();
        let gpus: GpuSet = (0..=dice.below(3))
            .map(|_| (servers[dice.below(servers.len())], 1))
            .collect();
        assert_eq!(index.tier(&gpus), cluster.tier(&gpus));
        assert!(index.is_free(&gpus));
    }
}

#[test]
fn a_giant_rack_among_many_does_not_need_a_giant_table() {
    let server = |rack| Server {
        gpu_type: GpuTypeId(0),
        gpus: 8,
        rack: RackId(rack),
    };
    let mut servers = vec![server(0); 3000];
    servers.extend((1..3000).map(server));
    let cluster = ClusterSpec::new(vec![gpu_type("a")], servers).expect("a valid cluster");
    let mut index = FreeIndex::new(&cluster);
    let pool = index.pool_mut(GpuTypeId(0));
    assert_eq!(pool.rack_best_fit(9), Some(0));
    assert_eq!(pool.rack_best_fit(8), Some(1));
    assert_eq!(pool.rack_most_free(), Some((0, 24_000)));
    assert_eq!(pool.rack_after(1), Some(2));
    index.set_free_mask(ServerId(3001), 0b1);
    index.set_up(ServerId(3002), false);
    let pool = index.pool_mut(GpuTypeId(0));
    assert_eq!(pool.rack_best_fit(1), Some(2));
    pool.assert_consistent();
}

#[test]
fn a_walk_over_256_racks_ends_behind_the_last() {
    // 256 is the largest number of racks that are kept unsorted. The numbers of free GPUs are odd, because only then
    // does the carry in `FreeOrder::next_from` matter.
    let server = |rack| Server {
        gpu_type: GpuTypeId(0),
        gpus: if rack == 255 { 5 } else { 3 },
        rack: RackId(rack),
    };
    let cluster = ClusterSpec::new(vec![gpu_type("a")], (0..256).map(server).collect())
        .expect("a valid cluster");
    let mut index = FreeIndex::new(&cluster);
    let pool = index.pool_mut(GpuTypeId(0));
    assert_eq!(pool.rack_most_free(), Some((255, 5)));
    assert_eq!(pool.rack_emptier(255), Some(0));
    assert_eq!(pool.rack_after(254), Some(255));
    assert_eq!(pool.rack_after(255), None);
}
