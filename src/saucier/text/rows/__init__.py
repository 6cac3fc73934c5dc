"""Rows and batches: kinds of rows, the token store that they are cut from, and the endless and finite batches of each
kind."""
