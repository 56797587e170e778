"""The client: trains on its partition."""

from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from task import Net, load_partition, loader_of, train

from isfl.flower import class_counts, sampler

app = ClientApp()


@app.train()
def train_round(message, context):
    data = load_partition(context.node_config["partition-id"], context.node_config["num-partitions"])
    model = Net()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    loader = loader_of(data, sampler=sampler(message, data.tensors[1]))
    loss = train(model, loader)
    reply = RecordDict(
        {
            "arrays": ArrayRecord(model.state_dict()),
            "isfl": class_counts(message, data.tensors[1]),
            "metrics": MetricRecord({"loss": loss, "num-examples": len(data)}),
        }
    )
    return Message(reply, reply_to=message)
