//! `yarn` and `whole_servers`: one server, or otherwise idle servers in one rack; `yarn` adds one more server for the
//! rest of the gang.

use super::{Fit, Pick, PlacementParams, Rule, consolidate};
use gangline_engine::TypePool;

/// The way in which a gang that is larger than a server is divided.
#[derive(Clone, Copy)]
struct Cut {
    /// Number of idle servers of the largest size.
    whole: u32,
    /// Number of GPUs on one additional server.
    rest: u32,
    /// Number of GPUs that are left unused on the last of the idle servers.
    unused: u32,
}

/// Applies the rule to a pool with at least `gpus` free GPUs.
pub(super) fn place(
    params: &PlacementParams,
    pool: &mut TypePool,
    gpus: u32,
    picks: &mut Vec<Pick>,
) -> bool {
    let size = pool.server_gpus_max();
    if gpus <= size {
        let found = consolidate::server(params.fit, pool, gpus);
        picks.extend(found.map(|at| Pick { at, gpus }));
        return found.is_some();
    }
    let cut = if params.rule == Rule::WholeServers {
        let whole = gpus.div_ceil(size);
        Cut {
            whole,
            rest: 0,
            unused: whole * size - gpus,
        }
    } else {
        Cut {
            whole: gpus / size,
            rest: gpus % size,
            unused: 0,
        }
    };
    if pool.whole_total() < cut.whole {
        return false;
    }
    if params.yarn_cross_rack || pool.racks() == 1 {
        return take(params.fit, pool, None, cut, picks);
    }
    let rack = match params.fit {
        Fit::Best => pool.rack_whole_best(cut.whole, cut.rest),
        Fit::First => pool.rack_whole_first(cut.whole, cut.rest),
    };
    rack.is_some_and(|rack| take(params.fit, pool, Some(rack), cut, picks))
}

/// Takes the idle servers in index order, then the server for the rest of the gang. If `rack` is `None`, all servers of
/// the type are searched.
fn take(
    fit: Fit,
    pool: &mut TypePool,
    rack: Option<usize>,
    cut: Cut,
    picks: &mut Vec<Pick>,
) -> bool {
    let size = pool.server_gpus_max();
    let servers = match rack {
        Some(rack) => pool.rack_servers(rack),
        None => pool.all_servers(),
    };
    let mut idle = servers.with_free(size);
    picks.extend(
        idle.by_ref()
            .take(cut.whole as usize)
            .map(|at| Pick { at, gpus: size }),
    );
    let Some(last) = picks.last_mut().filter(|pick| pick.gpus > cut.unused) else {
        return false;
    };
    last.gpus -= cut.unused;
    if cut.rest == 0 {
        return picks.len() == cut.whole as usize;
    }
    let next_idle = idle.next();
    let found = match fit {
        Fit::Best => servers.best_fit(cut.rest).filter(|&(_, free)| free < size),
        // The first servers with `size` free GPUs are already taken. Skipping these servers costs no more than taking
        // them.
        Fit::First => servers
            .at_least(cut.rest)
            .find(|&(at, free)| free < size || next_idle.is_some_and(|idle| at >= idle)),
    };
    let found = found.map(|(at, _)| at).or(next_idle);
    picks.extend(found.map(|at| Pick { at, gpus: cut.rest }));
    found.is_some()
}
