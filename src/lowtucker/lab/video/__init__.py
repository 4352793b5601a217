"""Grey clips: read from videos, images and arrays, cropped, written as GIF."""

from lowtucker.lab.video.clips import load_video, save_gif

__all__ = ["load_video", "save_gif"]
