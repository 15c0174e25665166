//! Solves the exact auction with integer programs.
//!
//! For a server, gangs of the same size are equivalent, so the programs count gangs by size instead of listing each
//! gang. For each size, there are two kinds of counts: gangs that a single server holds, and gangs that a rack holds,
//! possibly on several of its servers. Only the winning bids are decided gang by gang. The variables are, in this
//! order: the bids, the counts of gangs on a server, and the counts of gangs in a rack.

use super::bids::{AuctionAsk, Bid, Offer};
use gangline_allocation::{How, Model, Rows, Solver, SolverError};
use gangline_model::{GpuTypeId, Tier};
use std::collections::BTreeMap;

/// Values of an objective count as equal if they differ by at most this tolerance, which is relative for values above
/// 1.
const SAME: f64 = 1e-9;

type Terms = Vec<(usize, f64)>;
/// A GPU type, and a rack that has servers of this type.
type Rack = (GpuTypeId, u32);
/// Properties that bids have in common: type, tier (`None` for GPUs that the bidder holds) and gang size.
type Kind = (GpuTypeId, Option<Tier>, u32);

/// Returns the winning bids in order, and the numbers of programs and solver iterations.
pub(super) fn winners(
    ask: &AuctionAsk,
    solver: &mut dyn Solver,
    how: How,
    choices_max: u64,
) -> Result<(Vec<usize>, [u32; 2]), SolverError> {
    let mut program = Program {
        ask,
        model: model(ask),
        solver,
        how,
        spent: [0, 0],
    };
    let wins = if ask.bids.is_empty() {
        Vec::new()
    } else {
        program.choose(choices_max)?
    };
    let bids = (0..wins.len()).filter(|&bid| wins[bid] > 0.0).collect();
    Ok((bids, program.spent))
}

struct Program<'a> {
    ask: &'a AuctionAsk,
    model: Model,
    solver: &'a mut dyn Solver,
    how: How,
    spent: [u32; 2],
}

impl Program<'_> {
    /// Returns 1 for each winning bid and 0 for all others.
    fn choose(&mut self, choices_max: u64) -> Result<Vec<f64>, SolverError> {
        let values: Vec<f64> = self.ask.bids.iter().map(|bid| bid.value).collect();
        let mut wins = self.serve(&values)?;
        self.keep(&values, &wins);
        let stays: Vec<f64> = self.ask.bids.iter().map(is_own).collect();
        if wins.iter().zip(&stays).any(|(wins, stays)| wins < stays) {
            wins = self.serve(&stays)?;
        }
        self.keep(&stays, &wins);
        let against: Vec<f64> = wins.iter().map(|own| 1.0 - 2.0 * own).collect();
        if self.serve(&against)? == wins {
            return Ok(wins);
        }
        for worth in turns(self.ask, choices_max) {
            wins = self.serve(&worth)?;
            for bid in (0..wins.len()).filter(|&bid| worth[bid] > 0.0) {
                self.model.lower[bid] = wins[bid];
                self.model.upper[bid] = wins[bid];
            }
        }
        Ok(wins)
    }

    /// Finds the bids with the largest total weight that can be served together.
    fn serve(&mut self, worth: &[f64]) -> Result<Vec<f64>, SolverError> {
        self.model.cost.fill(0.0);
        self.model.cost[..worth.len()].copy_from_slice(worth);
        let solved = self.solver.solve(&self.model, &[], self.how)?;
        let found = solved.solutions.first().ok_or(SolverError::Input {
            what: "solutions",
            expected: "one solution for each objective",
        })?;
        self.spent[0] += 1;
        self.spent[1] += found.iterations;
        let bids = found.x[..worth.len()].iter();
        Ok(bids.map(|own| own.round_ties_even()).collect())
    }

    /// Restricts the choices to those whose total weight is at least that of the given choice, up to rounding.
    fn keep(&mut self, worth: &[f64], wins: &[f64]) {
        let least: f64 = worth
            .iter()
            .zip(wins)
            .map(|(worth, wins)| worth * wins)
            .sum();
        let counts = worth.iter().copied().enumerate();
        let terms = counts.filter(|own| own.1 > 0.0).collect();
        add(
            &mut self.model.rows,
            terms,
            least - SAME * least.max(1.0),
            f64::INFINITY,
        );
    }
}

fn is_own(bid: &Bid) -> f64 {
    f64::from(u8::from(matches!(bid.offer, Offer::Own(..))))
}

/// Divides the bidders into groups, in order, and returns weights of the bids for each group. With these weights, the
/// bidders of a group choose in turn. A bid outweighs each later bid of the same bidder, and also any combination of
/// bids of the bidders that follow.
fn turns(ask: &AuctionAsk, choices_max: u64) -> Vec<Vec<f64>> {
    let mut turns = Vec::new();
    let mut some: Vec<&[Bid]> = Vec::new();
    let (mut first, mut choices) = (0, 1_u64);
    for bids in ask.bids.chunk_by(|a, b| a.bidder == b.bidder) {
        let own = bids.len() as u64 + 1;
        if !some.is_empty() && choices.saturating_mul(own) > choices_max {
            turns.push(in_turn(&some, first, ask.bids.len()));
            first += some.iter().map(|own| own.len()).sum::<usize>();
            some.clear();
            choices = 1;
        }
        some.push(bids);
        choices = choices.saturating_mul(own);
    }
    turns.push(in_turn(&some, first, ask.bids.len()));
    turns
}

/// Returns the weights of the bids of successive bidders; `first` is the index of their first bid.
fn in_turn(some: &[&[Bid]], first: usize, bids: usize) -> Vec<f64> {
    let mut worth = vec![0.0; bids];
    let (mut end, mut unit) = (first + some.iter().map(|own| own.len()).sum::<usize>(), 1.0);
    for own in some.iter().rev() {
        for place in 0..own.len() {
            end -= 1;
            worth[end] = unit * (place + 1) as f64;
        }
        unit *= (own.len() + 1) as f64;
    }
    worth
}

/// A map whose values are in the order in which keys were inserted.
#[derive(Default)]
struct InOrder<K, V> {
    place: BTreeMap<K, usize>,
    all: Vec<(K, V)>,
}

impl<K: Ord + Copy, V: Default> InOrder<K, V> {
    fn of(&mut self, key: K) -> &mut V {
        let at = *self.place.entry(key).or_insert(self.all.len());
        if at == self.all.len() {
            self.all.push((key, V::default()));
        }
        &mut self.all[at].1
    }
}

/// A variable that counts the gangs of one size on a server, or in the rack whose first server is `room`.
struct Column {
    room: usize,
    gang: u32,
}

/// Returns the integer program, without an objective.
fn model(ask: &AuctionAsk) -> Model {
    let mut kinds = InOrder::<Kind, Vec<usize>>::default();
    for (at, bid) in ask.bids.iter().enumerate() {
        let (gpu_type, tier) = match bid.offer {
            Offer::Anywhere(gpu_type, tier) => (gpu_type, Some(tier)),
            Offer::Own(gpu_type, _) => (gpu_type, None),
        };
        kinds.of((gpu_type, tier, ask.gangs[bid.bidder])).push(at);
    }
    let kinds = kinds.all;
    let mut racks = InOrder::<Rack, (Option<usize>, u32)>::default();
    for (at, room) in ask.rooms.iter().enumerate() {
        let (first, free) = racks.of((room.gpu_type, room.rack));
        first.get_or_insert(at);
        *free += room.free;
    }
    let whole = ask
        .rooms
        .iter()
        .enumerate()
        .map(|(at, room)| (at, room.free));
    let on_room = columns(ask, &kinds, Tier::Server, whole);
    let first = racks
        .all
        .iter()
        .filter_map(|(_, (first, free))| Some(((*first)?, *free)));
    let in_rack = columns(ask, &kinds, Tier::Rack, first);
    let (bids, rooms) = (ask.bids.len(), on_room.len());
    let mut rows = Rows::default();
    let mut first = 0;
    for own in ask.bids.chunk_by(|a, b| a.bidder == b.bidder) {
        let terms = (first..first + own.len()).map(|bid| (bid, 1.0)).collect();
        add(&mut rows, terms, f64::NEG_INFINITY, 1.0);
        first += own.len();
    }
    as_many_as_win(
        ask,
        &kinds,
        (&on_room, bids),
        (&in_rack, bids + rooms),
        &mut rows,
    );
    fits(ask, &kinds, (&on_room, &in_rack), &mut racks, &mut rows);
    let columns = bids + rooms + in_rack.len();
    let mut upper = vec![f64::INFINITY; columns];
    upper[..bids].fill(1.0);
    Model {
        cost: vec![0.0; columns],
        lower: vec![0.0; columns],
        upper,
        rows,
        maximise: true,
        is_integer: true,
    }
}

/// Returns a variable for each place and each gang size that fits there. `places` contains the server (or the first
/// server of the rack) and the number of free GPUs of each place.
fn columns(
    ask: &AuctionAsk,
    kinds: &[(Kind, Vec<usize>)],
    tier: Tier,
    places: impl Iterator<Item = (usize, u32)>,
) -> Vec<Column> {
    places
        .flat_map(|(room, free)| {
            let fits = kinds.iter().filter(move |((gpu_type, own, gang), _)| {
                *own == Some(tier) && *gpu_type == ask.rooms[room].gpu_type && *gang <= free
            });
            fits.map(move |((_, _, gang), _)| Column { room, gang: *gang })
        })
        .collect()
}

/// Adds constraints: for each type, tier and size, the number of winning bids equals the number of gangs that the
/// variables count. `on_room` and `in_rack` each contain variables and the index of the first of them.
fn as_many_as_win(
    ask: &AuctionAsk,
    kinds: &[(Kind, Vec<usize>)],
    on_room: (&[Column], usize),
    in_rack: (&[Column], usize),
    rows: &mut Rows,
) {
    for ((gpu_type, tier, gang), bids) in kinds {
        let (columns, first) = match tier {
            Some(Tier::Server) => on_room,
            Some(Tier::Rack) => in_rack,
            Some(Tier::Network) | None => continue,
        };
        let mut terms: Terms = bids.iter().map(|&bid| (bid, 1.0)).collect();
        let places = columns.iter().zip(first..).filter(|(column, _)| {
            column.gang == *gang && ask.rooms[column.room].gpu_type == *gpu_type
        });
        terms.extend(places.map(|(_, at)| (at, -1.0)));
        add(rows, terms, 0.0, 0.0);
    }
}

/// Adds constraints: the gangs on each server, in each rack and on each type must not need more GPUs than are free
/// there.
fn fits(
    ask: &AuctionAsk,
    kinds: &[(Kind, Vec<usize>)],
    (on_room, in_rack): (&[Column], &[Column]),
    rack_free: &mut InOrder<Rack, (Option<usize>, u32)>,
    rows: &mut Rows,
) {
    let mut rooms = InOrder::<usize, Terms>::default();
    let mut racks = InOrder::<Rack, Terms>::default();
    let mut types = InOrder::<GpuTypeId, Terms>::default();
    let rack_of = |room: usize| (ask.rooms[room].gpu_type, ask.rooms[room].rack);
    let columns = on_room.iter().chain(in_rack).zip(ask.bids.len()..);
    for (place, (column, at)) in columns.enumerate() {
        let term = (at, f64::from(column.gang));
        if place < on_room.len() {
            rooms.of(column.room).push(term);
        }
        racks.of(rack_of(column.room)).push(term);
    }
    for &(bid, room, gpus) in &ask.own {
        rooms.of(room).push((bid, f64::from(gpus)));
        racks.of(rack_of(room)).push((bid, f64::from(gpus)));
    }
    for ((gpu_type, _, gang), bids) in kinds {
        let gang = f64::from(*gang);
        types
            .of(*gpu_type)
            .extend(bids.iter().map(|&bid| (bid, gang)));
    }
    let mut at_most = |terms: Terms, free: u32| {
        add(rows, terms, f64::NEG_INFINITY, f64::from(free));
    };
    for (room, terms) in rooms.all {
        at_most(terms, ask.rooms[room].free);
    }
    for (rack, terms) in racks.all {
        at_most(terms, rack_free.of(rack).1);
    }
    for (gpu_type, terms) in types.all {
        let mine = ask.rooms.iter().filter(|room| room.gpu_type == gpu_type);
        at_most(terms, mine.map(|room| room.free).sum());
    }
}

/// Adds a constraint. The coefficients of a repeated variable are added up, because a gang may hold GPUs on several
/// servers of a rack.
fn add(rows: &mut Rows, terms: Terms, lower: f64, upper: f64) {
    let mut summed = InOrder::<usize, f64>::default();
    for (column, factor) in terms {
        *summed.of(column) += factor;
    }
    let row = rows.lower.len();
    let entries = summed.all.into_iter();
    rows.entries
        .extend(entries.map(|(column, factor)| (row, column, factor)));
    rows.lower.push(lower);
    rows.upper.push(upper);
}
