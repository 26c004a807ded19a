from flair.datasets import CONLL_03
from flair.embeddings import TransformerWordEmbeddings
from flair.models import SequenceTagger
from flair.trainers import ModelTrainer

corpus = CONLL_03(base_path="/data/ner")
d = corpus.make_label_dictionary("ner")
emb = TransformerWordEmbeddings("xlm-roberta-base", fine_tune=True, use_context=True)
tagger = SequenceTagger(256, emb, d, "ner", use_crf=False, use_rnn=False, reproject_embeddings=False)
ModelTrainer(tagger, corpus).fine_tune("out/xlmr", mini_batch_size=8, mini_batch_chunk_size=2, max_epochs=10,
                                       multi_gpu=True, save_model_each_k_epochs=1)
