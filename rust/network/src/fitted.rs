//! Locality factors from fitted iteration times. In these fits, a gang synchronises more slowly on several servers than
//! on a single server.

use gangline_model::{
    ClusterSpec, Extent, Gang, GpuTypeId, Load, LocalityModel, Shape, StepFit, Tier,
};
use std::sync::Arc;

/// Locality factors of models with fitted iteration times. For all other jobs, another network model applies, or
/// distance costs nothing.
///
/// The factor is the iteration time on one server divided by the iteration time on several servers, capped at 1.
#[derive(Debug)]
pub struct Fitted {
    others: Option<Arc<dyn LocalityModel>>,
    extents: Vec<Extent>,
    /// Fits, by model label and GPU type.
    fits: Vec<Vec<Option<StepFit>>>,
}

impl Fitted {
    /// Creates the factors from fits by model label and GPU type, and a model for all other jobs.
    pub fn new(
        cluster: &ClusterSpec,
        fits: Vec<Vec<Option<StepFit>>>,
        others: Option<Arc<dyn LocalityModel>>,
    ) -> Self {
        Self {
            others,
            extents: Extent::by_type(cluster),
            fits,
        }
    }

    fn of_model(&self, gang: &Gang) -> &[Option<StepFit>] {
        let of_label = |label| self.fits.get(label as usize);
        let fits = gang
            .model
            .filter(|_| gang.batch_size > 0)
            .and_then(of_label);
        fits.map_or(&[], Vec::as_slice)
    }
}

impl LocalityModel for Fitted {
    fn locality(&self, gang: &Gang, shape: Shape) -> f64 {
        let fits = self.of_model(gang);
        let Some(fit) = fits.get(gang.gpu_type.index()).copied().flatten() else {
            let others = self.others.as_ref();
            return others.map_or(1.0, |model| model.locality(gang, shape));
        };
        if shape.tier() == Tier::Server {
            return 1.0;
        }
        let on = |servers| fit.step_s(gang.gpus, servers, gang.batch_size, 0);
        (on(1) / on(2)).min(1.0)
    }

    fn canonical(&self, gpu_type: GpuTypeId, gpus: u32, tier: Tier) -> Shape {
        match &self.others {
            Some(model) => model.canonical(gpu_type, gpus, tier),
            None => self.extents[gpu_type.index()].canonical(gpus, tier),
        }
    }

    fn shared_bw(&self) -> Option<f64> {
        self.others.as_ref()?.shared_bw()
    }

    fn load(&self, gang: &Gang, shape: Shape) -> Option<Load> {
        if self.of_model(gang).iter().any(Option::is_some) {
            return None; // The fit of the job already includes the time of its transfers.
        }
        self.others.as_ref()?.load(gang, shape)
    }

    fn skew(&self, model: Option<u32>) -> Option<f64> {
        self.others.as_ref()?.skew(model)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gangline_model::TierTable;

    fn gang(model: u32, batch_size: u32, gpus: u32) -> Gang {
        Gang {
            model: Some(model),
            batch_size,
            gpu_type: GpuTypeId::new(0),
            gpus,
        }
    }

    #[test]
    fn a_fit_gives_the_cost_of_several_servers() {
        // A pass takes 1 s. Synchronisation takes 0.25 s on one server and 1.5 s on several. Nothing overlaps.
        let fit = StepFit {
            pass_s: [0.5, 0.5],
            server_s: [0.25, 0.0],
            servers_s: [1.5, 0.0],
            gamma: 1.0,
        };
        let others = TierTable::new(vec![[1.0, 0.9, 0.8]]).expect("valid");
        let model = Fitted {
            others: Some(Arc::new(others)),
            extents: vec![Extent { server: 4, rack: 8 }],
            fits: vec![vec![Some(fit)], vec![None]],
        };
        let shape = |tier| model.canonical(GpuTypeId::new(0), 6, tier);
        let of = |gang, tier| model.locality(&gang, shape(tier));
        for tier in [Tier::Rack, Tier::Network] {
            assert!((of(gang(0, 1, 2), tier) - 0.5).abs() < 1e-15);
        }
        assert!((of(gang(0, 1, 2), Tier::Server) - 1.0).abs() < 1e-15);
        let network = [gang(1, 1, 2), gang(0, 0, 2)].map(|gang| of(gang, Tier::Network));
        assert!(
            network.iter().all(|factor| (factor - 0.8).abs() < 1e-15),
            "without a fit, and without a batch size: {network:?}"
        );
    }
}
