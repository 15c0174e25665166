use super::*;
use gangline_engine::FreeIndex;
use gangline_model::{ClusterSpec, GpuType, GpuTypeId, RackId, Server};
use proptest::prelude::*;
use std::collections::BTreeMap;

const TYPE: GpuTypeId = GpuTypeId(0);
const SIZES: [u32; 3] = [2, 4, 8];

fn index(servers: usize) -> FreeIndex {
    let gpu_type = GpuType {
        name: "a".into(),
        memory_bytes: u64::MAX,
        price_per_hour: 0.0,
        speed: 1.0,
    };
    let server = |at| Server {
        gpu_type: TYPE,
        gpus: SIZES[at % SIZES.len()],
        rack: RackId(0),
    };
    let servers = (0..servers).map(server).collect();
    let cluster = ClusterSpec::new(vec![gpu_type], servers).expect("a cluster");
    FreeIndex::new(&cluster)
}

fn key(main: i64, job: u32) -> Key {
    Key { lead: 0, main, job }
}

/// The same by walking all guests of all servers.
struct Plain {
    firm: Vec<u64>,
    guests: BTreeMap<Key, GpuSet>,
}

impl Plain {
    fn mask(&self, at: usize, key: Key) -> u64 {
        let before = self.guests.range(..key);
        before.fold(self.firm[at], |mask, (_, gpus)| {
            mask & !gpus.mask_on(ServerId::new(at))
        })
    }

    fn with_room(&self, key: Key, gpus: u32) -> impl Iterator<Item = (u32, usize)> {
        let free = (0..self.firm.len()).map(move |at| (self.mask(at, key).count_ones(), at));
        free.filter(move |&(free, _)| free >= gpus)
    }

    fn find(&self, key: Key, gpus: u32, is_first: bool) -> Option<(ServerId, u64)> {
        let mut rooms = self.with_room(key, gpus);
        let (_, at) = if is_first { rooms.next() } else { rooms.min() }?;
        Some((ServerId::new(at), self.mask(at, key)))
    }
}

/// One draw: what is done, where, at which place in the order, and to which GPUs.
type Step = (u8, usize, i64, u64);

/// Carries a draw out on both sides.
fn change(step: Step, job: u32, seats: &mut Seats, firm: &mut FreeIndex, plain: &mut Plain) {
    let (what, at, main, bits) = step;
    let server = ServerId::new(at);
    let size = SIZES[at % SIZES.len()];
    let held = plain.guests.values();
    let taken = held.fold(0, |mask, gpus| mask | gpus.mask_on(server));
    let all = u64::MAX >> (64 - size);
    match what {
        // a guest sits down, on two servers where both have room
        0..3 => {
            let next = ServerId::new((at + 1) % plain.firm.len());
            let other = plain.guests.values();
            let other = other.fold(0, |mask, gpus| mask | gpus.mask_on(next));
            let parts = [
                (server, plain.firm[at] & !taken & bits),
                (next, plain.firm[next.index()] & !other & bits >> 8),
            ];
            let parts = parts.into_iter().filter(|(_, mask)| *mask != 0);
            let gpus: GpuSet = parts.collect();
            if !gpus.is_empty() {
                seats.add(key(main, job), &gpus);
                plain.guests.insert(key(main, job), gpus);
            }
        }
        3 => {
            let next = plain.guests.range(key(main, 0)..).next();
            if let Some((&key, gpus)) = next {
                seats.remove(key, gpus);
                plain.guests.remove(&key);
            }
        }
        // admitted jobs take or leave GPUs without a guest
        _ => {
            let mask = (bits & all) | taken;
            firm.sync(server, mask);
            plain.firm[at] = mask;
            seats.firm_changed(&GpuSet::single(server, 1));
        }
    }
}

proptest! {
    #[test]
    fn answers_like_a_walk_over_all_guests(
        servers in prop_oneof![2_usize..6, 120_usize..140],
        steps in prop::collection::vec((0_u8..5, 0_usize..140, -9_i64..9, any::<u64>()), 1..80),
        questions in prop::collection::vec((-10_i64..10, 1_u32..10, any::<bool>(), 2_u32..4), 80),
    ) {
        let mut firm = index(servers);
        let mut seats = Seats::new(servers, 8);
        seats.note_all();
        let firm_masks = (0..servers).map(|at| firm.pool(TYPE).mask(at)).collect();
        let mut plain = Plain { firm: firm_masks, guests: BTreeMap::new() };
        let mut seen = 0;
        for (job, (step, question)) in (1_u32..).zip(steps.into_iter().zip(questions)) {
            let (what, at, main, bits) = step;
            change((what, at % servers, main, bits), job, &mut seats, &mut firm, &mut plain);
            let (main, gpus, is_first, several) = question;
            let (pool, key) = (firm.pool(TYPE), key(main, job));
            let may = seats.may_have(pool, key, (1, gpus));
            let found = seats.find(pool, key, gpus, is_first);
            prop_assert_eq!(found, plain.find(key, gpus, is_first));
            prop_assert!(may || found.is_none());
            if found.is_none() {
                prop_assert!(!seats.may_have(pool, key, (1, gpus)), "asked and not found");
            }
            let has_several = plain.with_room(key, gpus).count() >= several as usize;
            prop_assert_eq!(seats.may_have(pool, key, (several, gpus)), has_several);
            let (changes, next) = seats.changes_since(seen);
            if let Some(changes) = changes {
                prop_assert!(what < 4 || changes.contains(&((at % servers) as u32)));
            }
            seen = next;
        }
    }
}
