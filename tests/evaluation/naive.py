"""SentEval's procedure written out, one model at a time, with torch's own parts."""

import copy

import numpy as np
import torch


def fit_one(x, y, train, dev, l2, classes, protocol, drawn=0):
    """One fit, as published: seed, linear layer, epochs of shuffled batches, stop on dev, keep the best."""
    order = np.random.RandomState(protocol.seed)
    if drawn:
        order.permutation(drawn)
    torch.manual_seed(protocol.seed)
    layer = torch.nn.Linear(x.shape[1], classes).double()
    kinds = {"adam": torch.optim.Adam, "rmsprop": torch.optim.RMSprop}
    optimizer = kinds[protocol.optimizer](layer.parameters(), weight_decay=l2)
    best_accuracy, best, misses, epochs, stop = -1, None, 0, 0, False
    while not stop and epochs <= protocol.max_epochs:
        for _ in range(protocol.epoch_size):
            shuffled = order.permutation(len(train))
            for i in range(0, len(train), protocol.batch_size):
                rows = train[shuffled[i : i + protocol.batch_size]]
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(layer(x[rows]), y[rows]).backward()
                optimizer.step()
        epochs += protocol.epoch_size
        accuracy = (layer(x[dev]).argmax(1) == y[dev]).double().mean().item()
        if accuracy > best_accuracy:
            best_accuracy, best = accuracy, copy.deepcopy(layer)
        else:
            stop = misses >= protocol.tenacity
            misses += 1
    return best, best_accuracy
