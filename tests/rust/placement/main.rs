//! Placement rules, compared with answers worked out by hand, a simple second implementation and brute force, and
//! checked against laws.

mod cost;
mod golden;
mod laws;
mod oracle;

use gangline_engine::FreeIndex;
use gangline_engine::PolicyError;
use gangline_model::{ClusterSpec, GpuSet, GpuType, GpuTypeId, JobId, RackId, Server, ServerId};
use gangline_policies::place::{Demand, Level, PlacementParams, Placer, Rule, Skew};
use gangline_policies::{ParamReader, ParamValue, Params};
use gangline_rng::{Purpose, Stream};

/// Random numbers for tests, unrelated to the stream of the random rules.
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

    fn one_of<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())]
    }
}

/// A cluster with its index, and a simple copy of the data that the index should hold.
struct World {
    cluster: ClusterSpec,
    index: FreeIndex,
    /// Mask of free slots of each server; `None` means that the server is down.
    masks: Vec<Option<u64>>,
}

impl World {
    /// Creates servers from (type, GPUs, rack), with all GPUs free and some servers down.
    fn new(servers: &[(u32, u32, u32)], down: &[usize]) -> Self {
        let gpu_type = |name: &str| GpuType {
            name: name.into(),
            memory_bytes: u64::MAX,
            price_per_hour: 0.0,
            speed: 1.0,
        };
        let rows = servers.iter().map(|&(gpu_type, gpus, rack)| Server {
            gpu_type: GpuTypeId(gpu_type),
            gpus,
            rack: RackId(rack),
        });
        let cluster = ClusterSpec::new(vec![gpu_type("a"), gpu_type("b")], rows.collect())
            .expect("a valid cluster");
        let ids = down.iter().map(|&at| ServerId::new(at));
        let index = FreeIndex::with_down(&cluster, ids);
        let masks = (0..servers.len())
            .map(|at| (!down.contains(&at)).then(|| cluster.full_mask(ServerId::new(at))))
            .collect();
        Self {
            cluster,
            index,
            masks,
        }
    }

    /// Sets the free slots of a server that is up.
    fn set(&mut self, at: usize, mask: u64) {
        if self.masks[at].is_some() {
            self.masks[at] = Some(mask);
            self.index.set_free_mask(ServerId::new(at), mask);
        }
    }

    fn take(&mut self, gpus: &GpuSet) {
        for part in gpus.by_server() {
            let at = part.server.index();
            self.set(at, self.masks[at].expect("up") & !part.mask);
        }
    }

    /// Draws a world of up to `servers` servers, with one to three sizes and one to five racks.
    fn random(dice: &mut Dice, servers: usize) -> Self {
        let sizes: &[u32] = dice.one_of(&[
            [4, 4, 4].as_slice(),
            &[8, 8, 8],
            &[8, 8, 4],
            &[2, 3, 5],
            &[64, 64, 1],
        ]);
        let racks = 1 + dice.below(5);
        let count = 1 + dice.below(servers);
        let mut rows: Vec<(u32, u32, u32)> = (0..count)
            .map(|_| {
                let gpu_type = u32::from(dice.below(6) == 0);
                (gpu_type, dice.one_of(sizes), dice.below(racks) as u32)
            })
            .collect();
        if dice.below(2) == 0 {
            rows.sort_by_key(|&(_, _, rack)| rack);
        }
        let down: Vec<usize> = (0..count).filter(|_| dice.below(12) == 0).collect();
        let mut world = Self::new(&rows, &down);
        let idle = 1 + dice.below(4);
        for at in 0..count {
            if dice.below(4) >= idle {
                world.shuffle(dice, at);
            }
        }
        world
    }

    /// Gives a server a random set of free slots.
    fn shuffle(&mut self, dice: &mut Dice, at: usize) {
        let full = self.cluster.full_mask(ServerId::new(at));
        let drawn = (dice.below(1 << 32) as u64) << 32 | dice.below(1 << 32) as u64;
        let mask = match dice.below(6) {
            0 => full,
            1 => 0,
            // All slots except one are free, so that large gangs often fit.
            2 => full & !(1 << dice.below(64)),
            _ => full & drawn,
        };
        self.set(at, mask);
    }

    /// Checks that the index still holds the data of the simple copy, in every structure.
    fn assert_index_untouched(&self) {
        for (at, mask) in self.masks.iter().enumerate() {
            assert_eq!(
                self.index.free_mask(ServerId::new(at)),
                mask.unwrap_or(0),
                "server {at}"
            );
        }
        for gpu_type in 0..self.index.types() {
            self.index
                .pool(GpuTypeId::new(gpu_type))
                .assert_consistent();
        }
    }
}

fn params(settings: &[(&str, &str)]) -> PlacementParams {
    read(settings).expect("valid parameters")
}

/// Reads settings from words; a word that reads as a number becomes a number.
fn read(settings: &[(&str, &str)]) -> Result<PlacementParams, PolicyError> {
    let value = |text: &str| match (text.parse(), text.parse()) {
        (Ok(number), _) => ParamValue::Float(number),
        (_, Ok(flag)) => ParamValue::Bool(flag),
        _ => ParamValue::Str(text.to_owned()),
    };
    let given: Params = settings
        .iter()
        .map(|&(field, text)| (field.to_owned(), value(text)))
        .collect();
    let reader = ParamReader::new("fifo", PlacementParams::specs(Rule::Consolidate), &given)?;
    Ok(PlacementParams::read(&reader))
}

fn placer(settings: &[(&str, &str)]) -> Placer {
    Placer::with_seed(params(settings), 11, &[])
}

fn demand(gpus: u32) -> Demand {
    Demand {
        job: JobId(0),
        gpus,
        skew: Skew::HIGH,
        starts: 0,
        max_level: Level::Network,
    }
}

/// Returns every combination of rule and parameters that makes a difference.
fn all_settings() -> Vec<Vec<(&'static str, &'static str)>> {
    let mut all = Vec::new();
    for fit in ["best", "first"] {
        for slots in ["lowest", "aligned"] {
            for level in ["server", "rack", "network"] {
                for choice in ["best_fit", "fewest_servers"] {
                    all.push(vec![
                        ("placement", "consolidate"),
                        ("fit", fit),
                        ("slots", slots),
                        ("max_level", level),
                        ("rack_choice", choice),
                    ]);
                }
            }
            for rule in ["yarn", "whole_servers"] {
                for cross in ["false", "true"] {
                    all.push(vec![
                        ("placement", rule),
                        ("fit", fit),
                        ("slots", slots),
                        ("yarn_cross_rack", cross),
                    ]);
                }
            }
            all.push(vec![
                ("placement", "best_speed"),
                ("fit", fit),
                ("slots", slots),
            ]);
            for choice in ["best_fit", "fewest_servers"] {
                all.push(vec![
                    ("placement", "skew"),
                    ("fit", fit),
                    ("slots", slots),
                    ("rack_choice", choice),
                    ("max_level", "rack"), // This concerns `consolidate` only.
                ]);
            }
        }
    }
    for rule in ["spread", "random", "random_server", "count"] {
        all.push(vec![("placement", rule)]);
        all.push(vec![("placement", rule), ("slots", "aligned")]);
    }
    all
}
