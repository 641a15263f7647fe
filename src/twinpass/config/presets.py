"""The paper's own settings as values of a run: the columns of Table A.1."""

from twinpass.config.run import Run
from twinpass.registry import Registry

# The six columns of Table A.1; one epoch without and three with supervision (Appendix A). The MLP over [CLS] is
# dropped after training without supervision and kept with it (section 6.3).
UNSUP = Run(
    view="dropout", model="bert-base-uncased", pooler="cls_mlp_train", batch_size=64, learning_rate=3e-5, epochs=1
)
SUP = Run(view="triplets", model="bert-base-uncased", pooler="cls_mlp", batch_size=512, learning_rate=5e-5, epochs=3)
PRESETS: Registry[Run] = Registry("preset")
PRESETS.add("unsup-bert-base", UNSUP)
PRESETS.add("unsup-bert-large", UNSUP.replace(model="bert-large-uncased", batch_size=64, learning_rate=1e-5))
PRESETS.add("unsup-roberta-base", UNSUP.replace(model="roberta-base", batch_size=512, learning_rate=1e-5))
PRESETS.add("unsup-roberta-large", UNSUP.replace(model="roberta-large", batch_size=512, learning_rate=3e-5))
PRESETS.add("sup-base", SUP)
PRESETS.add("sup-large", SUP.replace(model="bert-large-uncased", batch_size=512, learning_rate=1e-5))
