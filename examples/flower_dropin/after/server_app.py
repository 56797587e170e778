"""The server: FedAvg with importance sampling, and the accuracy after every round."""

from flwr.app import ArrayRecord, MetricRecord
from flwr.serverapp import ServerApp
from task import Net, accuracy, load_all

from isfl.flower import ISFL

app = ServerApp()


def evaluate(server_round, arrays):
    model = Net()
    model.load_state_dict(arrays.to_torch_state_dict())
    score = accuracy(model)
    print(f"round {server_round}: accuracy {score:.3f}")
    return MetricRecord({"accuracy": score})


@app.main()
def main(grid, context):
    _, _, public = load_all()
    strategy = ISFL(Net(), public, num_classes=10, fraction_evaluate=0.0)
    strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord(Net().state_dict()),
        num_rounds=context.run_config["num-rounds"],
        evaluate_fn=evaluate,
    )
