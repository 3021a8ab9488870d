"""The study of heads: does the attention of single heads follow grammar?"""
