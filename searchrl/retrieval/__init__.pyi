from .bm25 import BM25Retriever as BM25Retriever
from .indexes import IndexCache as IndexCache
from .progress import listening as listening
from .progress import tracked as tracked
from .words import tokenize as tokenize
