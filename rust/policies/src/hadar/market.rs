//! The market of the active jobs, and an allocation that is built up at the market's prices. `hadar` has one market. A
//! policy outside this crate can have its own market and can request prices at any of its decisions.
//!
//! For a policy outside this crate, an allocation costs O(servers + types x (1 + sizes of servers)), and an offer costs
//! as much as one search by [`Finder`].

use super::facts::{self, Facts};
use super::find::{Finder, Goal, Live, Quote};
use super::params::{HadarParams, Utility};
use super::price::{Prices, Pricing};
use crate::kit::{Seen, Servers};
use crate::params::ParamReader;
use gangline_engine::{Changes, ClusterView, PolicyError, Run};
use gangline_model::{ClusterSpec, JobId, Server, ServerId};
use std::collections::BTreeMap;

/// The data from which prices are computed. The epoch carries over from one allocation to the next, so prices also
/// depend on when earlier prices were requested.
#[derive(Debug)]
pub struct Market {
    pub(super) params: HadarParams,
    /// Servers. Between decisions, all GPUs of servers that are up count as free.
    pub(super) servers: Servers,
    pub(super) pricing: Pricing,
    pub(super) active: BTreeMap<JobId, Facts>,
}

impl HadarParams {
    /// Reads the parameters of a market that may be created in the middle of a run.
    ///
    /// # Errors
    /// Returns [`PolicyError::Parameter`] for a bad value, and for a utility whose `A` is fixed when a job arrives.
    pub fn of_market(reader: &ParamReader) -> Result<Self, PolicyError> {
        let params = Self::read(reader)?;
        if params.utility == Utility::FinishTimeFairness {
            let expected = "a different utility: with ftf, the A of a job is fixed when the job \
                            arrives, which may be before prices are first requested";
            return Err(reader.refuse("utility", expected));
        }
        Ok(params)
    }
}

impl Market {
    /// Creates a market that has no servers and no jobs yet.
    pub(super) fn new(params: HadarParams) -> Self {
        Self {
            params,
            servers: Servers::default(),
            pricing: Pricing::new(0),
            active: BTreeMap::new(),
        }
    }

    /// Sets the servers to those of a cluster, all of which are up.
    pub(super) fn open(&mut self, cluster: &ClusterSpec) {
        // Every server is usable. A gang has a place if its usable types have enough GPUs. The engine checks this,
        // because it knows whether a gang may use several types.
        let all = |server: &Server| Some(server.gpus);
        self.servers = Servers::new(cluster, self.params.rack_aware, all);
        self.pricing = Pricing::new(cluster.gpu_types().len());
    }

    /// Adds a job that becomes active.
    pub(super) fn arrive(&mut self, view: &ClusterView<'_>, job: JobId) -> Result<(), PolicyError> {
        let isolated_s = match self.params.utility {
            Utility::FinishTimeFairness => Some(self.isolated_s(view, job)?),
            _ => None,
        };
        let terms = (self.params.utility, self.params.round);
        let gang = (job, view.jobs().gpus(job));
        let rates = facts::gang_rates(view, job);
        let facts = Facts::new(view, terms, gang, rates, isolated_s)?;
        self.pricing.add(&facts);
        self.active.insert(job, facts);
        Ok(())
    }

    /// Removes a job that is no longer active.
    pub(super) fn finish(&mut self, job: JobId) {
        if let Some(facts) = self.active.remove(&job) {
            self.pricing.remove(&facts);
        }
    }

    /// Returns the time that all the work of a job takes on a fair share of the cluster. Call this method when the job
    /// arrives, because the share depends on the current state of the cluster.
    fn isolated_s(&self, view: &ClusterView<'_>, job: JobId) -> Result<f64, PolicyError> {
        let rates = facts::gang_rates(view, job);
        let jobs = (self.active.len() + 1) as f64;
        let (work, gang) = (
            Seen::AS_TOLD.work(view, job)?,
            f64::from(view.jobs().gpus(job)),
        );
        let on = |gpus: &[u32]| {
            let all = f64::from(gpus.iter().sum::<u32>());
            let weighted = rates
                .iter()
                .map(|&(id, rate)| rate * f64::from(gpus[id.index()]));
            let mean = weighted.sum::<f64>() / all;
            (mean > 0.0).then(|| work / (mean * (all / (jobs * gang)).min(1.0)))
        };
        // If no GPU that the job can use is up, the GPUs in the cluster description count instead.
        let seconds = on(&self.servers.up_by_type());
        let seconds = seconds.or_else(|| on(view.cluster().gpus_by_type()));
        Ok(seconds.expect("every job of the run has a GPU that it can use"))
    }

    // These methods are for policies outside this crate.

    /// Creates a market from the current state of a view.
    ///
    /// # Errors
    /// Returns [`PolicyError::NotAllowedToKnow`] for an online policy.
    pub fn of(view: &ClusterView<'_>, params: HadarParams) -> Result<Self, PolicyError> {
        let mut market = Self::new(params);
        market.open(view.cluster());
        let servers = (0..view.cluster().servers().len()).map(ServerId::new);
        for server in servers.filter(|&server| !view.is_up(server)) {
            market.servers.set_up(server, false);
        }
        for job in view.waiting().chain(view.running()) {
            market.arrive(view, job)?;
        }
        Ok(market)
    }

    /// Returns the parameters of the market.
    pub fn params(&self) -> &HadarParams {
        &self.params
    }

    /// Updates the market with the changes since the last decision.
    ///
    /// # Errors
    /// Returns [`PolicyError::NotAllowedToKnow`] for an online policy.
    pub fn update(&mut self, view: &ClusterView<'_>, changes: &Changes) -> Result<(), PolicyError> {
        for &job in &changes.arrived {
            self.arrive(view, job)?;
        }
        for &job in &changes.finished {
            self.finish(job);
        }
        for &server in changes.servers_up.iter().chain(&changes.servers_down) {
            self.servers.set_up(server, view.is_up(server));
        }
        Ok(())
    }

    fn refuse(&self, job: JobId, expected: &str) -> PolicyError {
        PolicyError::Parameter {
            policy: self.params.policy.clone(),
            field: "job".to_owned(),
            value: job.to_string(),
            expected: expected.to_owned(),
        }
    }

    fn facts(&self, job: JobId) -> Result<&Facts, PolicyError> {
        let facts = self.active.get(&job);
        facts.ok_or_else(|| self.refuse(job, "a job that is waiting or running"))
    }

    /// Returns the utility per GPU of an active job if it runs at its best rate from now on.
    ///
    /// # Errors
    /// Returns [`PolicyError::Parameter`] for a job that is not active.
    pub fn density(&self, view: &ClusterView<'_>, job: JobId) -> Result<f64, PolicyError> {
        let facts = self.facts(job)?;
        let remaining = Seen::AS_TOLD.work_left(view, job)?;
        Ok(facts.line(remaining).density(view.now()))
    }

    /// Returns an empty allocation with the prices at this instant. The epoch is updated, unless no job is active.
    ///
    /// # Errors
    /// Returns [`PolicyError::Parameter`] if the horizon is fixed and a job is older than it.
    pub fn allocation(&mut self, view: &ClusterView<'_>) -> Result<Allocation, PolicyError> {
        let Self {
            params,
            servers,
            pricing,
            active,
        } = self;
        let prices = if active.is_empty() {
            Prices::between(0.0, vec![0.0; view.cluster().gpu_types().len()], servers)
        } else {
            pricing.prices(params, view.now(), active, servers)?
        };
        Ok(Allocation {
            prices,
            servers: servers.clone(),
        })
    }
}

/// An allocation under construction: the prices at one instant, and the GPUs that are still free. At first, all GPUs of
/// servers that are up are free.
#[derive(Clone, Debug)]
pub struct Allocation {
    prices: Prices,
    servers: Servers,
}

impl Allocation {
    /// Returns `U_min`, and `U_max` by GPU type. `U_min` is 0 if no job is active, and `U_max` of a type is 0 if no
    /// active job can use it.
    pub fn bounds(&self) -> (f64, &[f64]) {
        (self.prices.floor, &self.prices.ceiling)
    }

    /// Returns the number of servers, up or down.
    pub fn servers(&self) -> usize {
        self.servers.count()
    }

    /// Returns the current price of a GPU on a server.
    pub fn price(&self, server: ServerId) -> f64 {
        let group = self.servers.group(server.0);
        self.prices.of(group, self.free(server))
    }

    /// Returns the number of free GPUs on a server.
    pub fn free(&self, server: ServerId) -> u32 {
        self.servers.free(server.0)
    }

    /// Returns the number of GPUs taken on a server.
    pub fn taken(&self, server: ServerId) -> u32 {
        self.servers.taken(server.0)
    }

    /// Takes GPUs on a server; `gpus` must not exceed the number of free GPUs.
    pub fn take(&mut self, server: ServerId, gpus: u32) {
        self.servers.take(server.0, gpus);
    }

    /// Gives back GPUs on a server; `gpus` must not exceed the number of taken GPUs.
    pub fn give(&mut self, server: ServerId, gpus: u32) {
        self.servers.give(server.0, gpus);
    }

    /// Returns the best place for an active job among the free GPUs, if there is any.
    ///
    /// # Errors
    /// Returns [`PolicyError::Parameter`] for a job that is not active, and for a job that runs in parts or with a
    /// number of GPUs that differs from the trace.
    pub fn offer(
        &self,
        market: &Market,
        view: &ClusterView<'_>,
        job: JobId,
        goal: Goal,
    ) -> Result<Option<Quote>, PolicyError> {
        let facts = market.facts(job)?;
        let is_gang = |run: &Run| run.parts().len() == 1 && run.gpus().gpus() == facts.gpus;
        if view.run(job).is_some_and(|run| !is_gang(run)) {
            let expected = "a job that is waiting, or is running as one gang with the number of GPUs that it asked for";
            return Err(market.refuse(job, expected));
        }
        let finder = Finder {
            view,
            params: &market.params,
            prices: &self.prices,
        };
        let live = Live::new(view, job)?;
        Ok(finder.find(&self.servers, facts, &live, goal))
    }
}
